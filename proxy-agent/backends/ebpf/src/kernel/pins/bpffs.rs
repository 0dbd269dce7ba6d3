//! The BPF file system that pins lie on: found, or mounted where it stays.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::Path};

use nix::{
    mount::{MsFlags, mount},
    sys::statfs::{BPF_FS_MAGIC, statfs},
};

use super::super::OpenError;

/// Where the kernel's own documentation and every tool expect it.
pub const BPFFS: &str = "/sys/fs/bpf";

/// As systemd mounts it.
pub(super) const MODE: &str = "mode=0700";

/// Inode of the initial pid namespace (`PROC_PID_INIT_INO` of the kernel), the same on every host.
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// What to do in a container.
const BRING_THE_HOSTS: &str = "mount the host's /sys/fs/bpf into the container (a hostPath \
                               volume), or name a directory of a BPF file system of the host with \
                               --pin-dir";

/// Where the BPF file system of `path` begins: looked for from above, because what is called so
/// further down may be a link that somebody placed.
pub fn root(path: &Path) -> Option<&Path> {
    let mut ancestors: Vec<&Path> = path.ancestors().collect();
    ancestors.reverse();
    let is_one =
        |path: &&Path| statfs(*path).is_ok_and(|there| there.filesystem_type() == BPF_FS_MAGIC);
    ancestors.into_iter().find(is_one)
}

/// Mounts one for `path` where there is none and it would stay.
pub fn ensure(path: &Path) -> Result<(), OpenError> {
    if root(path).is_some() {
        return Ok(());
    }
    if !path.starts_with(BPFFS) {
        return Err(missing(path));
    }
    if !would_stay() {
        return Err(OpenError::Host(would_not_stay(path)));
    }
    match mount_at(Path::new(BPFFS)) {
        Ok(()) => {
            tracing::info!(path = BPFFS, "mounted the BPF file system");
            Ok(())
        }
        Err(errno) => Err(OpenError::Host(format!(
            "mounting the BPF file system at {BPFFS}: {errno}; run as root, or mount it before: \
             mount -t bpf -o {MODE} bpf {BPFFS}"
        ))),
    }
}

/// Mounts one at `at`, closed to all but root. Without a mode, everybody may make directories in it.
pub fn mount_at(at: &Path) -> nix::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("bpf"), at, Some("bpf"), flags, Some(MODE))
}

/// There is none where pins shall be, and none that can be mounted.
pub fn missing(path: &Path) -> OpenError {
    OpenError::Host(format!(
        "pin directory {} is not on a BPF file system: mount one there (mount -t bpf -o {MODE} bpf DIR), or \
         use a directory under {BPFFS}",
        path.display()
    ))
}

/// Whether this process is in the initial pid namespace.
pub fn sees_every_process() -> bool {
    fs::metadata("/proc/self/ns/pid").is_ok_and(|file| file.ino() == INITIAL_PID_NAMESPACE)
}

pub(super) fn would_not_stay(path: &Path) -> String {
    format!(
        "{} is not on a BPF file system, and one that the agent mounts here goes with its mount \
         namespace, which is not the host's, and takes the programs along; {BRING_THE_HOSTS}",
        path.display()
    )
}

/// Whether what this process mounts outlives it: in the mount namespace of the host's init. That
/// of a container ends with its last process; what is pinned there is then gone, and nothing is
/// attached any more. What cannot be told counts as no.
pub(super) fn would_stay() -> bool {
    let namespace = |path| fs::metadata(path).map(|file| (file.dev(), file.ino()));
    stays(
        namespace("/proc/self/ns/pid"),
        namespace("/proc/self/ns/mnt"),
        namespace("/proc/1/ns/mnt"),
    )
}

/// In a pid namespace of its own, process 1 is not the host's init.
fn stays(
    pid: io::Result<(u64, u64)>,
    own: io::Result<(u64, u64)>,
    of_init: io::Result<(u64, u64)>,
) -> bool {
    let (Ok((_, pid)), Ok(own), Ok(of_init)) = (pid, own, of_init) else {
        return false;
    };
    pid == INITIAL_PID_NAMESPACE && own == of_init
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_in_the_mount_namespace_of_the_hosts_init() {
        let (host, container) = ((4, 1), (4, 2));
        let initial = (4, INITIAL_PID_NAMESPACE);
        assert!(stays(Ok(initial), Ok(host), Ok(host)));
        assert!(!stays(Ok(initial), Ok(container), Ok(host)));
        // What looks like init there is the container's own.
        assert!(!stays(Ok((4, 4_026_532_000)), Ok(container), Ok(container)));
        let denied = || Err(io::Error::from_raw_os_error(libc::EACCES));
        assert!(!stays(denied(), Ok(host), Ok(host)));
        assert!(!stays(Ok(initial), denied(), Ok(host)));
        assert!(!stays(Ok(initial), Ok(host), denied()));
    }
}
