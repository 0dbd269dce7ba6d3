//! The files of a node, as far as pods mount them: a mount namespace in which the usual paths are the
//! node's own.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::Bpffs;
use crate::{
    launcher::{READY, in_own_mounts, says_ready},
    process::Process,
};

/// Kept as long as this value.
#[derive(Debug)]
pub struct HostFiles {
    keeper: Process,
}

impl HostFiles {
    /// A node whose root of cgroups is `cgroup`.
    pub fn new(cgroup: &Path, bpffs: Bpffs) -> Result<Self> {
        let mount_bpffs = match bpffs {
            Bpffs::Mounted => "mount -t bpf bpf /sys/fs/bpf",
            Bpffs::Absent => "",
        };
        // In this order: what is found by the old paths comes before what hides it.
        let cgroup = cgroup.display();
        let prepare = format!(
            "while mountpoint -q /sys/fs/bpf; do umount /sys/fs/bpf; done\n\
             {mount_bpffs}\n\
             mount --bind {cgroup} /sys/fs/cgroup\n\
             mount -t tmpfs tmpfs /run\n\
             mount --make-rshared /"
        );
        let words = in_own_mounts(&["--propagation=private"], &prepare);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["sh", "-c", READY]);
        let keeper = says_ready("the files of a node", command)?;
        Ok(Self { keeper })
    }

    /// A program of this machine that finds them.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        let mounts = format!("--mount=/proc/{}/ns/mnt", self.keeper.pid());
        command.args([&*mounts, "--"]).arg(program);
        command
    }

    /// Where this process sees one.
    pub fn seen(&self, path: &Path) -> PathBuf {
        let root = format!("/proc/{}/root", self.keeper.pid());
        Path::new(&root).join(path.strip_prefix("/").unwrap_or(path))
    }
}
