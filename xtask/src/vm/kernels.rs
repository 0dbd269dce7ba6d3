//! The kernels that virtual machines boot: Debian's cloud kernels, unpacked into the cache and
//! never installed.
//!
//! Package lists are read into a private directory with the system's own mirror, so that an older
//! release's kernel can be had without adding that release to the machine.

use std::cmp::Ordering;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use xtask::paths;

use crate::progress;

/// The end of the release name of a kernel that we boot.
const FLAVOUR: &str = "-cloud-amd64";

/// A kernel series that the programs are tested on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// 5.10, the oldest supported.
    V5_10,
    /// 6.1, the first with `bpf_set_retval` for these hooks.
    V6_1,
    /// 6.12, the first long-term one with tcx.
    V6_12,
}

impl Line {
    /// Every series, oldest first.
    pub(crate) const ALL: [Self; 3] = [Self::V5_10, Self::V6_1, Self::V6_12];

    /// Whether one emulated processor must run at a time. With a thread for each, 6.12 dies every few
    /// minutes where a static key is switched (netfilter's, or that of a cgroup hook): a processor
    /// still meets the breakpoint that another one had put there and taken back, which the kernel
    /// rules out on real processors.
    pub(crate) const fn processors_take_turns(self) -> bool {
        matches!(self, Self::V6_12)
    }

    fn name(self) -> &'static str {
        match self {
            Self::V5_10 => "5.10",
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Line {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|line| line.name() == text);
        found.ok_or_else(|| format!("no such kernel; there are {names}"))
    }
}

/// An unpacked kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// What `uname -r` prints in it.
    pub(crate) release: String,
    /// The directory its package was unpacked in.
    pub(crate) dir: PathBuf,
}

impl Kernel {
    /// The bootable image.
    pub(crate) fn image(&self) -> PathBuf {
        self.dir
            .join("boot")
            .join(format!("vmlinuz-{}", self.release))
    }

    /// The directory of its modules.
    pub(crate) fn modules(&self) -> PathBuf {
        self.dir.join("lib/modules").join(&self.release)
    }
}

/// The newest kernel of a series in the cache.
pub(crate) fn find(cache: &Path, line: Line) -> Option<Kernel> {
    let entries = fs::read_dir(paths::kernels_dir(cache)).ok()?;
    let prefix = format!("{line}.");
    let kernels = entries.flatten().filter_map(|entry| {
        let release = entry.file_name().into_string().ok()?;
        let fits = release.starts_with(&prefix) && release.ends_with(FLAVOUR);
        fits.then(|| Kernel {
            release,
            dir: entry.path(),
        })
    });
    kernels.max_by(|a, b| by_version(&a.release, &b.release))
}

/// Downloads and unpacks the newest kernel of each series.
///
/// A kernel appears in the cache complete or not at all.
pub(crate) fn install(cache: &Path, lines: &[Line]) -> Result<()> {
    let kernels = paths::kernels_dir(cache);
    fs::create_dir_all(&kernels)
        .with_context(|| format!("making the kernel directory {}", kernels.display()))?;
    let work = tempfile::Builder::new()
        .prefix("download-")
        .tempdir_in(cache);
    let work = work.with_context(|| format!("making a directory in {}", cache.display()))?;
    let apt = PrivateApt::new(work.path())?;
    for line in lines {
        let package = apt.newest_image(*line)?;
        apt.download(&package)?;
        let release = release_of(&package);
        let unpacked = work.path().join(release);
        unpack(work.path(), &package, &unpacked, release)?;
        let place = kernels.join(release);
        if let Err(error) = fs::rename(&unpacked, &place) {
            // Another run may have been quicker.
            if !place.is_dir() {
                return Err(error).with_context(|| format!("putting {} in place", place.display()));
            }
        }
    }
    Ok(())
}

fn unpack(work: &Path, package: &str, into: &Path, release: &str) -> Result<()> {
    let prefix = format!("{package}_");
    let archive = fs::read_dir(work)
        .with_context(|| format!("listing {}", work.display()))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            path.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with(&prefix))
        })
        .with_context(|| format!("apt downloaded no file for {package}"))?;
    let what = format!("unpacking kernel {release}");
    progress::run_quietly(
        &what,
        Command::new("dpkg-deb").arg("-x").arg(&archive).arg(into),
    )?;
    let mut depmod = Command::new("depmod");
    depmod.env("PATH", xtask::environment::path_with(&[Path::new("/sbin")]));
    progress::run_quietly(
        "listing its modules",
        depmod.arg("-b").arg(into).arg(release),
    )
}

/// apt with lists and a cache of its own, which needs no privileges.
struct PrivateApt {
    options: Vec<String>,
    work: PathBuf,
}

impl PrivateApt {
    fn new(work: &Path) -> Result<Self> {
        for dir in ["lists/partial", "archives/partial"] {
            let dir = work.join("apt").join(dir);
            fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        }
        let sources = work.join("apt/sources.list");
        fs::write(&sources, sources_list(&configured_uris()?)?)
            .with_context(|| format!("writing {}", sources.display()))?;
        let at = |name: &str| work.join("apt").join(name).display().to_string();
        let options = vec![
            format!("-oDir::Etc::SourceList={}", sources.display()),
            "-oDir::Etc::SourceParts=/dev/null".to_owned(),
            format!("-oDir::State::Lists={}", at("lists")),
            format!("-oDir::Cache={}", at("")),
            // apt's own user cannot write into a directory of this user.
            "-oAPT::Sandbox::User=".to_owned(),
            "-q".to_owned(),
        ];
        let apt = Self {
            options,
            work: work.to_owned(),
        };
        progress::run_quietly(
            "reading kernel package lists",
            apt.command("apt-get").arg("update"),
        )?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(&self.options).current_dir(&self.work);
        command
    }

    fn newest_image(&self, line: Line) -> Result<String> {
        let pattern = format!("^linux-image-{}\\.", line.name().replace('.', "\\."));
        let mut search = self.command("apt-cache");
        let output = search.args(["search", "--names-only", &pattern]).output();
        let output = output.context("running apt-cache to find kernels")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let names = text.lines().filter_map(|line| line.split(' ').next());
        let images = names.filter(|name| release_of(name).ends_with(FLAVOUR));
        let newest = images.max_by(|a, b| by_version(a, b)).map(str::to_owned);
        newest.with_context(|| format!("the Debian mirror has no cloud kernel {line}"))
    }

    fn download(&self, package: &str) -> Result<()> {
        let what = format!("downloading {package}");
        progress::run_quietly(&what, self.command("apt-get").args(["download", package]))
    }
}

/// The kernel release in a package's name. Older releases of Debian add `-unsigned` to it when
/// the image is not signed, and have both.
fn release_of(package: &str) -> &str {
    let release = package.strip_prefix("linux-image-").unwrap_or(package);
    release.strip_suffix("-unsigned").unwrap_or(release)
}

/// The addresses this machine's apt would read, without reading them.
pub(crate) fn configured_uris() -> Result<String> {
    let output = Command::new("apt-get")
        .args(["update", "--print-uris"])
        .output();
    let output = output.context("asking apt for the mirrors of this machine")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A source list for the suites that have our kernels, on this machine's own mirrors.
fn sources_list(print_uris: &str) -> Result<String> {
    let bases: Vec<&str> = print_uris
        .lines()
        .filter_map(|line| {
            line.strip_prefix('\'')?
                .split_once("/dists/")
                .map(|(base, _)| base)
        })
        .collect();
    let base = |end: &str| {
        bases
            .iter()
            .find(|base| base.trim_end_matches('/').ends_with(end))
    };
    let Some(main) = base("/debian") else {
        bail!("finding a Debian mirror: apt on this machine is configured with none");
    };
    let signed = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]";
    let mut suites = vec![(main, "bullseye"), (main, "bookworm")];
    suites.extend(base("/debian-security").map(|security| (security, "bookworm-security")));
    let line = |(base, suite): &(&&str, &str)| format!("deb {signed} {base} {suite} main\n");
    Ok(suites.iter().map(line).collect())
}

/// Compares version strings with numbers in them as numbers, so that 5.10.0-9 comes before
/// 5.10.0-35.
fn by_version(a: &str, b: &str) -> Ordering {
    fn parts(text: &str) -> impl Iterator<Item = (u64, &str)> {
        text.split(['.', '-', '+', '~'])
            .map(|part| (part.parse().unwrap_or(0), part))
    }
    parts(a).cmp(parts(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_known_by_name() {
        assert_eq!("6.12".parse(), Ok(Line::V6_12));
        let said = "4.19".parse::<Line>().unwrap_err();
        assert!(said.contains("5.10, 6.1, 6.12"), "{said}");
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let newer = "linux-image-5.10.0-35-cloud-amd64-unsigned";
        assert_eq!(
            by_version("linux-image-5.10.0-9-cloud-amd64-unsigned", newer),
            Ordering::Less
        );
        assert_eq!(
            by_version("6.1.0-37-cloud-amd64", "6.1.0-37-cloud-amd64"),
            Ordering::Equal
        );
    }

    #[test]
    fn the_newest_kernel_of_the_right_series_is_found() {
        let cache = tempfile::tempdir().unwrap();
        for name in [
            "6.1.0-9-cloud-amd64",
            "6.1.0-37-cloud-amd64",
            "6.12.1-cloud-amd64",
            "junk",
        ] {
            fs::create_dir_all(paths::kernels_dir(cache.path()).join(name)).unwrap();
        }
        assert_eq!(
            find(cache.path(), Line::V6_1).unwrap().release,
            "6.1.0-37-cloud-amd64"
        );
        assert_eq!(
            find(cache.path(), Line::V6_12).unwrap().release,
            "6.12.1-cloud-amd64"
        );
        assert_eq!(find(cache.path(), Line::V5_10), None);
    }

    #[test]
    fn the_machine_s_own_mirrors_are_used() {
        let uris = "'http://other.example/apt/dists/x/InRelease' a 0\n\
                    'http://m.example/debian/dists/trixie/InRelease' b 0\n\
                    'http://s.example/debian-security/dists/trixie-security/InRelease' c 0\n";
        let list = sources_list(uris).unwrap();
        assert!(
            list.contains("http://m.example/debian bullseye main"),
            "{list}"
        );
        assert!(
            list.contains("http://s.example/debian-security bookworm-security main"),
            "{list}"
        );
        assert!(!list.contains("other.example"), "{list}");
        assert!(sources_list("").is_err());
    }

    #[test]
    fn a_package_name_gives_the_release() {
        assert_eq!(
            release_of("linux-image-5.10.0-35-cloud-amd64-unsigned"),
            "5.10.0-35-cloud-amd64"
        );
        assert_eq!(
            release_of("linux-image-6.1.0-37-cloud-amd64"),
            "6.1.0-37-cloud-amd64"
        );
    }
}
