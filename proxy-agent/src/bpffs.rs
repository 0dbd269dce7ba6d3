//! Mounts the BPF file system for the whole host, for what starts before the agent and has more
//! rights than it: an init container, say. Knows no pins.
//!
//! The eBPF backend mounts one by itself where that stays; in a container it would not.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    sys::statfs::{BPF_FS_MAGIC, statfs},
};
use thiserror::Error;

use crate::host::mounts::{self, Mount};

/// As systemd mounts it: closed to all but root.
const MODE: &str = "mode=0700";
/// Inode of the initial pid namespace (`PROC_PID_INIT_INO` of the kernel), the same on every host.
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
const FILE_SYSTEMS: &str = "/proc/filesystems";

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mounted {
    /// There is one now.
    Now,
    /// There was one.
    Before,
}

/// Why there is none.
#[derive(Debug, Error)]
pub enum MountError {
    /// It is no place for one.
    #[error(
        "{}: {reason}; give a directory of the host that exists, such as /sys/fs/bpf (--at)",
        .at.display()
    )]
    Place {
        /// Where.
        at: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The kernel has none.
    #[error(
        "this kernel has no BPF file system (`bpf` is not in {FILE_SYSTEMS}): it was built without \
         CONFIG_BPF_SYSCALL; backends that program packet rules need none"
    )]
    Kernel,
    /// It would be gone as soon as this process is.
    #[error(
        "{}: what is mounted here is not seen by the host, and goes with this container; mount the \
         host's /sys/fs into it with mountPropagation: Bidirectional, or run this on the host",
        .at.display()
    )]
    WouldGo {
        /// Where.
        at: PathBuf,
    },
    /// This process may not.
    #[error(
        "mounting the BPF file system at {}: {errno}; it takes CAP_SYS_ADMIN: run it as root of the \
         host, or in a privileged container",
        .at.display()
    )]
    Rights {
        /// Where.
        at: PathBuf,
        /// What the kernel said.
        errno: Errno,
    },
    /// Anything else.
    #[error("{what}: {error}")]
    Io {
        /// What was attempted.
        what: String,
        /// Why it failed.
        error: io::Error,
    },
}

/// Mounts the BPF file system at `at`, unless one is there.
pub fn ensure(at: &Path) -> Result<Mounted, MountError> {
    let place = |reason: String| MountError::Place {
        at: at.to_owned(),
        reason,
    };
    if !at.is_absolute() {
        return Err(place("is not an absolute path".to_owned()));
    }
    // As the mount table has it, whatever links lead there.
    let path = fs::canonicalize(at).map_err(|error| place(error.to_string()))?;
    if !path.is_dir() {
        return Err(place("is not a directory".to_owned()));
    }
    let there = statfs(&path).map_err(|errno| MountError::Io {
        what: format!("looking at {}", path.display()),
        error: errno.into(),
    })?;
    if there.filesystem_type() == BPF_FS_MAGIC {
        return Ok(Mounted::Before);
    }
    if !read(FILE_SYSTEMS)?
        .lines()
        .any(|line| line.trim_end().ends_with("\tbpf"))
    {
        return Err(MountError::Kernel);
    }
    let table = read(mounts::TABLE)?;
    let around = around(&table, &path);
    if let Some(mount) = around.as_ref().filter(|mount| mount.is_whole_at(&path)) {
        return Err(place(format!(
            "a file system of type {} is mounted there",
            mount.kind
        )));
    }
    if !around.is_some_and(|mount| mount.shared) && !is_of_init() {
        return Err(MountError::WouldGo { at: path });
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    match mount(Some("bpf"), &path, Some("bpf"), flags, Some(MODE)) {
        Ok(()) => Ok(Mounted::Now),
        Err(errno @ (Errno::EPERM | Errno::EACCES)) => Err(MountError::Rights { at: path, errno }),
        Err(errno) => Err(MountError::Io {
            what: format!("mounting the BPF file system at {}", path.display()),
            error: errno.into(),
        }),
    }
}

fn read(path: &str) -> Result<String, MountError> {
    fs::read_to_string(path).map_err(|error| MountError::Io {
        what: format!("reading {path}"),
        error,
    })
}

impl Mount<'_> {
    /// Whether it is somebody's file system, and not a directory of the host that was brought here.
    fn is_whole_at(&self, path: &Path) -> bool {
        self.at == path && self.root == "/"
    }
}

/// The mount that holds `path`: of those that could, the longest, and of these the last. Paths with
/// characters that the table escapes are found by what is above them, which is as good here.
fn around<'a>(table: &'a str, path: &Path) -> Option<Mount<'a>> {
    mounts::each(table)
        .filter(|mount| path.starts_with(mount.at))
        .max_by_key(|mount| mount.at.components().count())
}

/// Whether this process is on the host itself: what it mounts stays. In a pid namespace of its own,
/// process 1 is not the host's init, but then that of whoever set these namespaces up.
fn is_of_init() -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let pid = fs::metadata("/proc/self/ns/pid").map(|file| file.ino());
    let (own, of_init) = (namespace("self"), namespace("1"));
    pid.is_ok_and(|pid| pid == INITIAL_PID_NAMESPACE) && own.is_some() && own == of_init
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw
22 21 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw
23 22 0:21 /fs /sys/fs rw shared:9 master:2 - sysfs sysfs rw
24 21 0:30 / /run rw - tmpfs tmpfs rw
25 24 0:31 /a /run/a rw - ext4 /dev/x rw
26 24 0:32 / /run/a rw - tmpfs tmpfs rw
";

    #[test]
    fn the_mount_that_holds_a_path_is_the_longest_and_the_last() {
        let found =
            |path: &str| around(TABLE, Path::new(path)).map(|mount| (mount.kind, mount.shared));
        assert_eq!(found("/sys/fs/bpf"), Some(("sysfs", true)));
        assert_eq!(found("/runner"), Some(("ext4", true)));
        assert_eq!(found("/run/b"), Some(("tmpfs", false)));
        let over = around(TABLE, Path::new("/run/a")).unwrap();
        assert_eq!(
            (over.kind, over.is_whole_at(Path::new("/run/a"))),
            ("tmpfs", true)
        );
        let fs = Path::new("/sys/fs");
        assert!(!around(TABLE, fs).unwrap().is_whole_at(fs));
    }

    #[test]
    fn a_place_that_is_none_is_told_with_what_to_give() {
        for (at, part) in [
            ("bpf", "not an absolute path"),
            ("/nowhere/at/all", "No such file"),
            ("/proc/version", "not a directory"),
        ] {
            let told = ensure(Path::new(at)).unwrap_err().to_string();
            assert!(
                told.contains(part) && told.contains("/sys/fs/bpf"),
                "{told}"
            );
        }
    }
}
