//! The cgroup whose sockets are served.

use std::{
    fs::{self, File},
    io,
    os::{fd::AsRawFd as _, unix::fs::MetadataExt},
    path::{Path, PathBuf},
};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, fstatfs};

use super::OpenError;
use super::error::of_io;

/// Inode of the root of a cgroup v2 hierarchy (kernfs gives its root the first id). A container
/// with a cgroup namespace of its own sees a child as the root of its mount; programs attached
/// there would miss every other pod.
const ROOT_INODE: u64 = 1;

/// An open cgroup directory.
#[derive(Debug)]
pub struct Cgroup {
    /// Where it is.
    pub path: PathBuf,
    /// Its kernel id, which is its inode number (since Linux 5.5).
    pub id: u64,
    /// The directory.
    pub directory: File,
}

impl Cgroup {
    /// Opens `path`, or the root of the cgroup v2 hierarchy found in the mount table.
    pub fn open(path: Option<&Path>) -> Result<Self, OpenError> {
        match path {
            Some(path) => Self::open_at(path).map_err(|error| {
                OpenError::Host(format!(
                    "cgroup {}: {error}; --cgroup-path must name a directory of the cgroup v2 file \
                     system (see `mount -t cgroup2`)",
                    path.display()
                ))
            }),
            None => Self::open_root(),
        }
    }

    /// Opens the directory again if it was removed and made anew. One that is merely hidden, by
    /// something mounted over it, still serves: what lies there now must not take its place.
    pub fn refresh(&mut self) {
        if self.is_removed()
            && let Ok(now) = Self::open_at(&self.path)
            && now.id != self.id
        {
            *self = now;
        }
    }

    /// Whether the directory is gone, wherever it was: its files are gone with it.
    fn is_removed(&self) -> bool {
        let own = format!("/proc/self/fd/{}/cgroup.procs", self.directory.as_raw_fd());
        fs::metadata(own).is_err()
    }

    /// The error is why, without the path.
    fn open_at(path: &Path) -> io::Result<Self> {
        let directory = File::open(path)?;
        if fstatfs(&directory)?.filesystem_type() != CGROUP2_SUPER_MAGIC {
            return Err(io::Error::other("not on the cgroup v2 file system"));
        }
        let id = directory.metadata()?.ino();
        Ok(Self {
            path: path.to_owned(),
            id,
            directory,
        })
    }

    fn open_root() -> Result<Self, OpenError> {
        const MOUNTS: &str = "/proc/self/mountinfo";
        let mounts = fs::read_to_string(MOUNTS)
            .map_err(|error| of_io(&error, &format!("reading {MOUNTS}")))?;
        let candidates = cgroup2_mounts(&mounts);
        if candidates.is_empty() {
            return Err(OpenError::Host(
                "no cgroup v2 file system is mounted: mount one (mount -t cgroup2 cgroup2 \
                 /sys/fs/cgroup), or name a directory of one with --cgroup-path"
                    .into(),
            ));
        }
        let mut seen = Vec::new();
        for path in &candidates {
            let shown = path.display();
            seen.push(match Self::open_at(path) {
                Ok(cgroup) if cgroup.id == ROOT_INODE => return Ok(cgroup),
                Ok(cgroup) => format!("{shown} (inode {})", cgroup.id),
                // Another file system may be mounted over it.
                Err(error) => format!("{shown} ({error})"),
            });
        }
        Err(OpenError::Host(format!(
            "no mount of cgroup v2 shows the real root (inode {ROOT_INODE}), only {}: \
             probably this process is in a cgroup namespace, and programs attached there would \
             not see other pods; run in the host's cgroup namespace, mount the host's cgroup directory, or name \
             a cgroup with --cgroup-path",
            seen.join(", ")
        )))
    }
}

/// Mount points of type cgroup2, as `/proc/self/mountinfo` (proc(5)) lists them.
fn cgroup2_mounts(mountinfo: &str) -> Vec<PathBuf> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let is_cgroup2 = after.split(' ').next() == Some("cgroup2");
            let mount_point = before.split(' ').nth(4)?;
            is_cgroup2.then(|| PathBuf::from(unescape(mount_point)))
        })
        .collect()
}

/// Undoes the octal escapes of space, tab, newline and backslash in `/proc/self/mountinfo`.
pub fn unescape(text: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (escape, character)| {
        text.replace(escape, character)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup2_is_found_among_other_mounts() {
        let mountinfo = "\
25 1 0:22 / /sys rw,nosuid shared:7 - sysfs sysfs rw
30 25 0:26 / /sys/fs/cgroup rw shared:9 - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/cpu rw,nosuid shared:11 - cgroup cgroup rw,cpu
33 30 0:27 /kubepods /run/a\\040b rw - cgroup2 cgroup2 rw
";
        let expected = ["/sys/fs/cgroup/unified", "/run/a b"].map(PathBuf::from);
        assert_eq!(cgroup2_mounts(mountinfo), expected);
    }
}
