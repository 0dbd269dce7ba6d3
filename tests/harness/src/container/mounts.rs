//! Changes of mounts, and a container's file system made of its caller's.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
    unistd::{chroot, fchdir},
};

/// What container runtimes let nobody write although `/proc` can be written.
const READ_ONLY_IN_PROC: [&str; 4] = ["sys", "sysrq-trigger", "irq", "bus"];

/// For what mount(2) does not need.
pub const NOTHING: Option<&str> = None;

/// Moves this process into a mount namespace of its own, in which everything but `/proc` and
/// `writable` is read-only.
pub fn make_read_only_but(writable: &[PathBuf]) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("cannot make a mount namespace")?;
    // What is mounted here must not come to the caller.
    change(Path::new("/"), MsFlags::MS_REC | MsFlags::MS_PRIVATE)?;
    for path in writable {
        bind(path)?;
    }
    for mounted in mounted()? {
        let stays = mounted.starts_with("/proc") || writable.contains(&mounted);
        // What lies beneath another mount cannot be reached by its path, and need not be.
        if !stays && mounted.exists() {
            make_read_only(&mounted)?;
        }
    }
    protect_proc(Path::new("/"))
}

/// Moves this process, which must have one thread, to the files of another one.
pub fn share_with(process: i32) -> Result<()> {
    let of = |what: &str| {
        let path = format!("/proc/{process}/{what}");
        fs::File::open(&path).with_context(|| format!("cannot open {path}"))
    };
    let (namespace, root) = (of("ns/mnt")?, of("root")?);
    setns(namespace, CloneFlags::CLONE_NEWNS).context("cannot enter a mount namespace")?;
    // A namespace has no root of its own; this one may be the host's still.
    fchdir(root).context("cannot go to the root")?;
    chroot(".").context("cannot stay in the root")
}

/// Makes of `/proc` below `root` read-only what runtimes do.
pub fn protect_proc(root: &Path) -> Result<()> {
    for name in READ_ONLY_IN_PROC {
        let path = root.join("proc").join(name);
        if path.exists() {
            bind(&path)?;
            make_read_only(&path)?;
        }
    }
    Ok(())
}

/// Makes `path` a mount of its own, with what is mounted below.
fn bind(path: &Path) -> Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(path), path, NOTHING, flags, NOTHING)
        .with_context(|| format!("cannot mount {} on itself", path.display()))
}

/// Lets nobody write what is mounted at `path`, by that path.
pub fn make_read_only(path: &Path) -> Result<()> {
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    change(path, flags)
}

/// Changes what is mounted at `path`.
pub fn change(path: &Path, flags: MsFlags) -> Result<()> {
    mount(NOTHING, path, NOTHING, flags, NOTHING)
        .with_context(|| format!("cannot change the mount {}", path.display()))
}

/// Where something is mounted.
fn mounted() -> Result<Vec<PathBuf>> {
    let table =
        fs::read_to_string("/proc/self/mountinfo").context("cannot read the mount table")?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(points.map(PathBuf::from).collect())
}
