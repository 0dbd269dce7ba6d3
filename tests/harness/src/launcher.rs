//! Command lines that start an agent in unusual surroundings: for [`crate::AgentOptions::launcher`].

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::cgroup::unique_name;

/// A shell in a mount namespace of its own that runs `prepare`, then its arguments. `unshare` gives
/// further flags of unshare(1).
pub fn in_own_mounts(unshare: &[&str], prepare: &str) -> Vec<String> {
    let mut launcher = vec!["unshare".to_owned(), "--mount".to_owned()];
    launcher.extend(unshare.iter().map(|flag| (*flag).to_owned()));
    launcher.extend(shell(prepare));
    launcher
}

/// A shell that runs `prepare`, then its arguments in its own place.
fn shell(prepare: &str) -> [String; 4] {
    ["sh", "-ec", &format!("{prepare}\nexec \"$@\""), "sh"].map(str::to_owned)
}

/// Where memory cgroups of version 1 are; beside version 2, which then has no such controller.
const MEMORY: &str = "/sys/fs/cgroup/memory";

/// A memory cgroup of our own, for one process after the other. Removed on drop: whoever is in it
/// must have ended by then.
#[derive(Debug)]
pub struct MemoryLimit {
    path: PathBuf,
}

impl MemoryLimit {
    /// Whether this host has the hierarchy.
    pub fn is_possible() -> bool {
        Path::new(MEMORY).join("memory.limit_in_bytes").exists()
    }

    /// Makes one with this limit.
    pub fn new(mebibytes: u64) -> Result<Self> {
        let path = Path::new(MEMORY).join(unique_name());
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let limit = Self { path };
        limit.set(mebibytes)?;
        Ok(limit)
    }

    /// Changes the limit.
    pub fn set(&self, mebibytes: u64) -> Result<()> {
        let file = self.path.join("memory.limit_in_bytes");
        fs::write(&file, (mebibytes << 20).to_string())
            .with_context(|| format!("cannot write {}", file.display()))
    }

    /// A command that runs its arguments within the limit.
    pub fn launcher(&self) -> Vec<String> {
        let procs = self.path.join("cgroup.procs");
        shell(&format!("echo $$ > {}", procs.display())).into()
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.path) {
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
    }
}
