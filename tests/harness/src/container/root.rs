//! The root file system of a container: an image, unpacked in a directory, with what runtimes mount
//! in it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::{Context as _, Result};
use nix::{
    mount::{MsFlags, mount},
    unistd::chroot,
};

use super::mounts;

/// Something of the host that a container sees, and cannot write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it is.
    pub from: PathBuf,
    /// Where the container sees it.
    pub to: PathBuf,
}

impl FromStr for Mount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text
            .split_once(':')
            .ok_or_else(|| format!("{text} is not FROM:TO"))?;
        Ok(Self {
            from: from.into(),
            to: to.into(),
        })
    }
}

/// What every container sees of its host, and whether with what is mounted below. Not below `/sys`:
/// what a pod wants of that is a volume of its own.
const OF_HOST: [(&str, bool); 4] = [
    ("/proc", true),
    ("/dev", true),
    ("/sys", false),
    ("/sys/fs/cgroup", true),
];

/// Moves this process into a mount namespace of its own, where `root` is the root, and only `/proc`
/// and `writable` can be written.
pub fn enter(root: &Path, of_pod: &[Mount], writable: &[PathBuf]) -> Result<()> {
    mounts::unshare()?;
    let root = fs::canonicalize(root).with_context(|| format!("there is no {}", root.display()))?;
    bind(&root, &root, false)?;
    for (path, below) in OF_HOST {
        bind(Path::new(path), &within(&root, Path::new(path)), below)?;
    }
    for one in of_pod {
        bind(&one.from, &made(&one.from, &within(&root, &one.to))?, false)?;
    }
    for path in writable {
        bind(path, &made(path, &within(&root, path))?, false)?;
    }
    let stays: Vec<PathBuf> = writable.iter().map(|path| within(&root, path)).collect();
    let proc = within(&root, Path::new("/proc"));
    for mounted in mounts::mounted()? {
        let ours = mounted.starts_with(&root) && !mounted.starts_with(&proc);
        if ours && !stays.contains(&mounted) {
            mounts::make_read_only(&mounted)?;
        }
    }
    mounts::protect_proc(&proc)?;
    chroot(&root).with_context(|| format!("cannot make {} the root", root.display()))?;
    env::set_current_dir("/").context("cannot go to the new root")
}

fn within(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// What can be mounted on, of the kind of `from`: as runtimes make it where an image has nothing.
fn made(from: &Path, at: &Path) -> Result<PathBuf> {
    if !at.exists() {
        let done = if from.is_dir() {
            fs::create_dir_all(at)
        } else {
            fs::create_dir_all(at.parent().unwrap_or(at)).and_then(|()| fs::write(at, ""))
        };
        done.with_context(|| format!("cannot make {}", at.display()))?;
    }
    Ok(at.to_owned())
}

fn bind(from: &Path, at: &Path, with_what_is_below: bool) -> Result<()> {
    let mut flags = MsFlags::MS_BIND;
    if with_what_is_below {
        flags |= MsFlags::MS_REC;
    }
    let nothing: Option<&str> = None;
    mount(Some(from), at, nothing, flags, nothing)
        .with_context(|| format!("cannot mount {} on {}", from.display(), at.display()))
}
