//! One bare root: a copy of the base with a clone of this repository. Goes away when it is closed,
//! unless it is to be kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xtask::paths;

use super::cgroup;
use crate::progress;

/// Where the clone is, seen from inside.
pub(super) const CHECKOUT: &str = "/root/culvert";

/// What names of roots begin with; the id of the process that made it follows.
const PREFIX: &str = "root-";

/// The same of roots that are to be kept, which are never swept.
const KEPT: &str = "kept-";

/// A root.
pub(super) struct Root {
    path: PathBuf,
    keep: bool,
}

impl Root {
    /// A copy of `base` below `place`.
    pub(super) fn new(place: &Path, base: &Path, keep: bool) -> Result<Self> {
        let prefix = if keep { KEPT } else { PREFIX };
        let path = place.join(format!("{prefix}{}", std::process::id()));
        let root = Self { path, keep };
        let mut copy = Command::new("cp");
        copy.args(["--archive", "--reflink=auto", "--no-target-directory"])
            .arg(base)
            .arg(&root.path);
        progress::run_quietly("copying the bare Debian", &mut copy)?;
        Ok(root)
    }

    /// One that an earlier run kept.
    pub(super) fn again(path: &Path) -> Result<Self> {
        let checkout = path.join(CHECKOUT.trim_start_matches('/'));
        ensure!(
            checkout.is_dir(),
            "{} is no root that `--keep` left: there is no {}",
            path.display(),
            checkout.display()
        );
        let path = path
            .canonicalize()
            .with_context(|| format!("looking up {}", path.display()))?;
        Ok(Self { path, keep: true })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Clones the last commit of this checkout, and nothing that is not committed.
    pub(super) fn clone_checkout(&self) -> Result<()> {
        let mut git = Command::new("git");
        git.args(["clone", "--quiet", "--depth", "1", "--no-tags"])
            .arg(format!("file://{}", paths::workspace_root().display()))
            .arg(self.path.join(CHECKOUT.trim_start_matches('/')));
        progress::run_quietly("cloning this repository", &mut git)
    }

    /// Removes it, or says where it is.
    pub(super) fn close(mut self) -> Result<()> {
        if self.keep {
            eprintln!(
                "kept: {}; `cargo xtask fresh --again {} --command bash` looks around in it, `rm \
                 -r` removes it: nothing is mounted there",
                self.path.display(),
                self.path.display()
            );
            return Ok(());
        }
        self.keep = true;
        remove(&self.path)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if let Err(error) = remove(&self.path) {
            eprintln!("{error:#}");
        }
    }
}

/// By a program, which is quicker about a tree of this size, and stays on one file system: should
/// anything be mounted here after all, it is not ours to empty.
fn remove(path: &Path) -> Result<()> {
    let mut command = Command::new("rm");
    command
        .args(["--recursive", "--force", "--one-file-system", "--"])
        .arg(path);
    progress::run_quietly("removing the bare root", &mut command)
}

/// Removes roots and cgroups of runs that were killed.
pub(super) fn sweep(place: &Path) {
    cgroup::sweep();
    let Ok(entries) = fs::read_dir(place) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if maker.is_some_and(cgroup::is_gone)
            && let Err(error) = remove(&entry.path())
        {
            eprintln!("warning: a run that was killed left something: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_left_is_swept_and_what_is_kept_or_in_use_is_not() {
        let place = tempfile::tempdir().unwrap();
        let (gone, here) = (u32::MAX, std::process::id());
        let names = [
            format!("{PREFIX}{gone}"),
            format!("{PREFIX}{here}"),
            format!("{KEPT}{gone}"),
            "bookworm+git".to_owned(),
        ];
        for name in &names {
            fs::create_dir_all(place.path().join(name).join("etc")).unwrap();
        }
        sweep(place.path());
        let there = names.map(|name| place.path().join(name).exists());
        assert_eq!(there, [false, true, true, true]);
    }

    #[test]
    fn only_what_was_kept_is_entered_again() {
        let place = tempfile::tempdir().unwrap();
        let said = Root::again(place.path()).err().unwrap().to_string();
        assert!(said.contains("is no root that `--keep` left"), "{said}");
    }
}
