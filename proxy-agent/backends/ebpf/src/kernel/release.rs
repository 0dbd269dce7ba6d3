//! The version of the running kernel, for what no system call tells before it is too late.

use std::fs;

/// Major and minor number.
pub type Version = (u32, u32);

/// Since this one, what maps take counts against the memory cgroup of whoever makes them, and no longer
/// against `RLIMIT_MEMLOCK`.
pub const CHARGES_CGROUPS: Version = (5, 11);

/// The release, such as `6.12.9+deb13`. The error is what was found in its place.
pub fn release() -> Result<String, String> {
    const RELEASE: &str = "/proc/sys/kernel/osrelease";
    fs::read_to_string(RELEASE)
        .map(|text| text.trim().to_owned())
        .map_err(|error| format!("reading {RELEASE}: {error}"))
}

/// The version of the running kernel, if it can be read.
pub fn running() -> Option<Version> {
    release().ok().and_then(|release| version(&release))
}

/// The version of a release such as `5.10.0-33-cloud-amd64`.
pub fn version(release: &str) -> Option<Version> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_every_distribution_are_read() {
        for (release, expected) in [
            ("5.10.0-33-cloud-amd64", Some((5, 10))),
            ("6.12.9+deb13", Some((6, 12))),
            ("6.1.0", Some((6, 1))),
            ("5.4-rc1", Some((5, 4))),
            ("unknown", None),
        ] {
            assert_eq!(version(release), expected, "{release}");
        }
        let older = version("5.10.1");
        assert!(older < Some(CHARGES_CGROUPS) && version("5.11.0") >= Some(CHARGES_CGROUPS));
        assert!(running().is_some());
    }
}
