//! Pin directories on bpffs that go away with the value that named them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Once,
};

use anyhow::{Context as _, Result, anyhow};
use nix::mount::{MsFlags, mount};

use crate::cgroup;

/// Where bpffs is mounted on every host.
pub const MOUNT_POINT: &str = "/sys/fs/bpf";

/// A pin directory for one agent. It is only named here: the agent makes it.
#[derive(Debug)]
pub struct PinDir {
    path: PathBuf,
}

impl PinDir {
    /// Names a directory that nobody else uses; mounts bpffs if it is not, and sweeps what
    /// killed runs left.
    pub fn new() -> Result<Self> {
        static SWEEP: Once = Once::new();
        mount_if_needed()?;
        SWEEP.call_once(sweep);
        Ok(Self {
            path: Path::new(MOUNT_POINT).join(cgroup::unique_name()),
        })
    }

    /// Where it is, or will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every file and directory in it, relative to it and sorted; empty when it does not exist.
    pub fn entries(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut open = vec![self.path.clone()];
        while let Some(dir) = open.pop() {
            let Ok(entries) = fs::read_dir(&dir) else {
                continue;
            };
            for entry in entries.filter_map(Result::ok) {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    open.push(path.clone());
                }
                if let Ok(relative) = path.strip_prefix(&self.path) {
                    found.push(relative.to_owned());
                }
            }
        }
        found.sort();
        found
    }
}

impl Drop for PinDir {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Whether bpffs is mounted where it belongs.
pub fn is_mounted() -> Result<bool> {
    let table =
        fs::read_to_string("/proc/self/mountinfo").context("cannot read the mount table")?;
    Ok(table.lines().any(|line| {
        line.split(' ').nth(4) == Some(MOUNT_POINT)
            && line
                .split_once(" - ")
                .is_some_and(|(_, filesystem)| filesystem.starts_with("bpf "))
    }))
}

fn mount_if_needed() -> Result<()> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        result = is_mounted().and_then(|mounted| {
            if mounted {
                return Ok(());
            }
            mount(
                Some("bpf"),
                MOUNT_POINT,
                Some("bpf"),
                MsFlags::empty(),
                None::<&str>,
            )
            .with_context(|| format!("cannot mount bpffs on {MOUNT_POINT}"))
        });
    });
    result.map_err(|error| anyhow!("{error:#}"))
}

fn sweep() {
    let Ok(entries) = fs::read_dir(MOUNT_POINT) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        if entry.file_name().to_str().is_some_and(cgroup::is_stale) {
            remove(&entry.path());
        }
    }
}

fn remove(path: &Path) {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            eprintln!("cannot remove the pins {}: {error}", path.display());
        }
        _ => {}
    }
}
