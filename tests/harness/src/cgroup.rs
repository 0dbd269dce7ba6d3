//! Cgroups of version 2 that go away with the value that made them.
//!
//! Their names hold the id of the process that made them, so that a later run can sweep what a
//! killed one left. Must not know what runs in them.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    sync::{
        Once,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::process;

/// What the names of everything a test leaves in shared places begin with.
pub const PREFIX: &str = "culvert-test-";

/// How long the processes of a cgroup may take to die.
const DEATH_LIMIT: Duration = Duration::from_secs(10);

/// A cgroup of our own, removed on drop together with its children and their processes.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    procs: File,
}

impl Cgroup {
    /// Makes a cgroup under the root of the hierarchy, and sweeps stale ones first.
    pub fn new() -> Result<Self> {
        static SWEEP: Once = Once::new();
        let root = mount_point()?;
        SWEEP.call_once(|| sweep(&root));
        Self::at(root.join(unique_name()))
    }

    /// Makes a cgroup under this one.
    pub fn child(&self, name: &str) -> Result<Self> {
        Self::at(self.path.join(name))
    }

    /// Makes a cgroup beside this one, so that programs attached to this one do not see it.
    pub fn sibling(&self) -> Result<Self> {
        Self::at(self.path.with_file_name(unique_name()))
    }

    fn at(path: PathBuf) -> Result<Self> {
        fs::create_dir(&path).with_context(|| {
            format!("cannot make the cgroup {} (root is needed)", path.display())
        })?;
        let procs = path.join("cgroup.procs");
        let procs = OpenOptions::new()
            .write(true)
            .open(&procs)
            .with_context(|| format!("cannot open {}", procs.display()))?;
        Ok(Self { path, procs })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Cgroup {
    /// Its `cgroup.procs`: a process that writes `0` to it moves in.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.procs.as_fd()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            eprintln!(
                "cannot remove the cgroup {}: {error:#}",
                self.path.display()
            );
        }
    }
}

/// Where the cgroup v2 hierarchy is mounted: `/sys/fs/cgroup` on most hosts,
/// `/sys/fs/cgroup/unified` beside version 1.
pub fn mount_point() -> Result<PathBuf> {
    let table =
        fs::read_to_string("/proc/self/mountinfo").context("cannot read the mount table")?;
    // Fields: id, parent, device, root, mount point, options, …, "-", type, source, options.
    table
        .lines()
        .find_map(|line| {
            let (mount, filesystem) = line.split_once(" - ")?;
            let mut fields = mount.split(' ').skip(3);
            let (root, point) = (fields.next()?, fields.next()?);
            (filesystem.starts_with("cgroup2 ") && root == "/").then(|| PathBuf::from(point))
        })
        .ok_or_else(|| anyhow!("no cgroup v2 hierarchy is mounted (see /proc/self/mountinfo)"))
}

/// A name that no other test, in this process or another, uses at the same time.
pub(crate) fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "{PREFIX}{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// Whether `name` was made by [`unique_name`] in a process that no longer exists.
pub(crate) fn is_stale(name: &str) -> bool {
    name.strip_prefix(PREFIX)
        .and_then(|rest| rest.split_once('-'))
        .and_then(|(pid, _)| pid.parse().ok())
        .is_some_and(|pid: u32| !process::is_alive(pid))
}

/// Removes what killed runs left in the hierarchy mounted at `root`. The first
/// [`Cgroup::new`] of a process does it.
pub fn sweep(root: &Path) {
    for path in children(root) {
        let stale = path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(is_stale);
        if stale && let Err(error) = remove(&path) {
            // Two runs may sweep at the same time; the other one may have won.
            eprintln!(
                "cannot sweep the stale cgroup {}: {error:#}",
                path.display()
            );
        }
    }
}

fn children(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Kills what runs in the cgroup and below, then removes it, children first.
fn remove(path: &Path) -> Result<()> {
    for child in children(path) {
        remove(&child)?;
    }
    let deadline = Instant::now() + DEATH_LIMIT;
    loop {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => return result.context("cannot remove the directory"),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(anyhow!("its processes did not die within {DEATH_LIMIT:?}"));
        }
        let procs = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        process::kill_all(procs.lines().filter_map(|pid| pid.parse().ok()));
        await_change(path, left.min(Duration::from_millis(100)));
    }
}

/// Waits until `cgroup.events` changes (the last process left), at most `limit`.
fn await_change(path: &Path, limit: Duration) {
    let Ok(events) = File::open(path.join("cgroup.events")) else {
        return;
    };
    let mut fds = [PollFd::new(events.as_fd(), PollFlags::POLLPRI)];
    let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::ZERO);
    // A failed poll only means that the caller looks again sooner.
    poll(&mut fds, timeout).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_dead_processes_are_stale() {
        assert!(!is_stale(&unique_name()), "our own");
        assert!(
            is_stale("culvert-test-4194305-0"),
            "above the largest process id"
        );
        assert!(!is_stale("culvert-test-x-0"));
        assert!(!is_stale("system.slice"));
    }
}
