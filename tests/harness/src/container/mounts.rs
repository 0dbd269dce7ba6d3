//! The mounts of a container, made of those of its caller.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use nix::{
    mount::{MsFlags, mount},
    sched::{self, CloneFlags},
};

/// What container runtimes let nobody write although `/proc` can be written.
const READ_ONLY_IN_PROC: [&str; 4] = ["sys", "sysrq-trigger", "irq", "bus"];

const NOTHING: Option<&str> = None;

/// Moves this process into a mount namespace of its own, in which everything but `/proc` and
/// `writable` is read-only.
pub fn make_read_only_but(writable: &[PathBuf]) -> Result<()> {
    unshare()?;
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
    protect_proc(Path::new("/proc"))
}

/// Moves this process into a mount namespace of its own.
pub(super) fn unshare() -> Result<()> {
    sched::unshare(CloneFlags::CLONE_NEWNS).context("cannot make a mount namespace")?;
    // What is mounted here must not come to the caller.
    remount(Path::new("/"), MsFlags::MS_REC | MsFlags::MS_PRIVATE)
}

/// Makes read-only what is so in the `/proc` that is mounted here.
pub(super) fn protect_proc(proc: &Path) -> Result<()> {
    for path in READ_ONLY_IN_PROC.map(|name| proc.join(name)) {
        if path.exists() {
            bind(&path)?;
            make_read_only(&path)?;
        }
    }
    Ok(())
}

/// Makes `path` a mount of its own.
fn bind(path: &Path) -> Result<()> {
    mount(Some(path), path, NOTHING, MsFlags::MS_BIND, NOTHING)
        .with_context(|| format!("cannot mount {} on itself", path.display()))
}

pub(super) fn make_read_only(path: &Path) -> Result<()> {
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    remount(path, flags)
}

fn remount(path: &Path, flags: MsFlags) -> Result<()> {
    mount(NOTHING, path, NOTHING, flags, NOTHING)
        .with_context(|| format!("cannot change the mount {}", path.display()))
}

/// Where something is mounted.
pub(super) fn mounted() -> Result<Vec<PathBuf>> {
    let table =
        fs::read_to_string("/proc/self/mountinfo").context("cannot read the mount table")?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(points.map(PathBuf::from).collect())
}
