//! Command lines that start an agent in unusual surroundings: for [`crate::AgentOptions::launcher`].

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use crate::{bpffs, cgroup::unique_name, process::Process};

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

/// A mount namespace with a BPF file system in which everybody may make directories, as the kernel
/// mounts it when nothing is said. It goes with its last process, and all pins in it.
#[derive(Debug)]
pub struct OwnBpffs {
    keeper: Process,
}

/// The user without any rights.
pub const NOBODY: u32 = 65534;

impl OwnBpffs {
    /// Makes one.
    pub fn new() -> Result<Self> {
        let mount = format!("mount -t bpf -o mode=1777 bpf {}", bpffs::MOUNT_POINT);
        let words = in_own_mounts(&[], &mount);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command.args(["sh", "-c", READY]);
        let keeper = says_ready("a mount namespace", command)?;
        Ok(Self { keeper })
    }

    /// A command that runs its arguments in it.
    pub fn launcher(&self) -> Vec<String> {
        let mounts = format!("--mount=/proc/{}/ns/mnt", self.keeper.pid());
        ["nsenter", &mounts, "--"].map(str::to_owned).into()
    }

    /// A program in it, as root.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let launcher = self.launcher();
        let mut command = Command::new(&launcher[0]);
        command.args(&launcher[1..]).arg(program);
        command
    }

    /// A shell in it that does what `script` says, as a user without rights.
    pub fn as_nobody(&self, script: &str) -> Command {
        let mut command = self.command("setpriv");
        for kind in ["--reuid", "--regid"] {
            command.arg(format!("{kind}={NOBODY}"));
        }
        command.args(["--clear-groups", "sh", "-ec", script]);
        command
    }

    /// A process of that user that locks a directory, until it is dropped.
    pub fn lock_as_nobody(&self, directory: &Path) -> Result<Process> {
        let directory = directory.display();
        let command = self.as_nobody(&format!("exec flock -n -F {directory} sh -c '{READY}'"));
        says_ready("a process that locks", command)
    }

    /// The same, by a process that has ended, and left the lock to this one.
    pub fn inherit_lock_as_nobody(&self, directory: &Path) -> Result<Process> {
        let directory = directory.display();
        let script = format!("exec 9<{directory}; flock -n 9; {READY}");
        says_ready("a process that locks", self.as_nobody(&script))
    }

    /// Where this process sees what is at `path` in it.
    pub fn seen(&self, path: &Path) -> PathBuf {
        let root = format!("/proc/{}/root", self.keeper.pid());
        Path::new(&root).join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// Says so, and stays.
pub(crate) const READY: &str = "echo ready; exec sleep infinity";

/// Starts what says so.
pub(crate) fn says_ready(name: &str, mut command: Command) -> Result<Process> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = Process::spawn(name, command)?;
    let stdout = process.child().stdout.take().context("no stdout")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    ensure!(line == "ready\n", "{name} ended instead: {line:?}");
    Ok(process)
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
