//! The cgroup of a bare root, so that what runs in it sees no cgroups of others, nor sweeps them:
//! ids of processes mean something else inside.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// What names begin with; the id of the process that made it follows, and a number.
const PREFIX: &str = "culvert-fresh-";

/// How long processes that were killed may take to be gone.
const LIMIT: Duration = Duration::from_secs(10);

/// How often they are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A cgroup, removed with all below it when this value goes.
pub(super) struct Cgroup(PathBuf);

impl Cgroup {
    /// A cgroup of this process at the top of the hierarchy.
    pub(super) fn new() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let path = mount_point()?.join(name);
        fs::create_dir(&path).with_context(|| format!("making the cgroup {}", path.display()))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let started = Instant::now();
        // The last process may not be gone yet when its namespace is.
        while let Err(error) = remove(&self.0) {
            if started.elapsed() > LIMIT {
                eprintln!("warning: removing the cgroup {}: {error}", self.0.display());
                return;
            }
            thread::sleep(LOOK);
        }
    }
}

/// Removes a cgroup and those below it.
fn remove(path: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(path)
}

/// Removes what runs left that were killed.
pub(super) fn sweep() {
    let entries = mount_point().and_then(|top| Ok(fs::read_dir(top)?));
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let maker = maker.and_then(|rest| rest.split('-').next());
        if maker.is_some_and(is_gone) {
            drop(Cgroup(entry.path()));
        }
    }
}

/// Whether there is no process of this id.
pub(super) fn is_gone(id: &str) -> bool {
    id.parse::<u32>()
        .is_ok_and(|id| !Path::new(&format!("/proc/{id}")).exists())
}

/// Where the hierarchy of version 2 is mounted: `/sys/fs/cgroup` on most hosts, below it where
/// version 1 is there too.
fn mount_point() -> Result<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("reading the mount table")?;
    mount_point_in(&table).context(
        "finding cgroups of version 2: the hierarchy is mounted nowhere (`mount -t cgroup2 none \
         /sys/fs/cgroup` where nothing else needs that place)",
    )
}

fn mount_point_in(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (filesystem.starts_with("cgroup2 ") && root == "/").then(|| PathBuf::from(point))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_found_beside_version_1() {
        let table = "24 1 0:21 / /sys rw - sysfs none rw\n\
                     30 24 0:26 / /sys/fs/cgroup/cpu rw - cgroup none rw,cpu\n\
                     31 24 0:27 /a /mnt rw - cgroup2 none rw\n\
                     32 24 0:27 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 none rw\n";
        assert_eq!(
            mount_point_in(table),
            Some(PathBuf::from("/sys/fs/cgroup/unified"))
        );
        assert_eq!(mount_point_in(""), None);
    }

    #[test]
    fn a_process_that_lives_is_not_gone() {
        assert!(!is_gone(&std::process::id().to_string()));
        assert!(!is_gone("no number"));
        assert!(is_gone(&u32::MAX.to_string()));
    }
}
