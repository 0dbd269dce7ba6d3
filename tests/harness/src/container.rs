//! What a container runtime leaves a process that is not privileged: a read-only root, the
//! capabilities that its pod names, a seccomp filter, and no way to more.
//!
//! `culvert-pod contain` is that runtime, as far as agents can tell: it stays in the namespaces of
//! its caller but for mounts, and takes this host's file system for the image unless a root is
//! named.

mod mounts;
mod root;
mod seccomp;

use std::{
    convert::Infallible,
    ffi::OsString,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
pub use caps::Capability;
use caps::{CapSet, CapsHashSet};
use clap::Args;

use crate::executable;
pub use root::Mount;
pub use seccomp::Profile;

/// Where images have their programs.
const PROGRAMS: &str = "/usr/local/bin";

/// A container, as the security context and the volumes of a pod describe it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Container {
    /// What is left of root's rights, as a pod names them: `NET_ADMIN`
    #[arg(long = "capability", value_name = "NAME", value_parser = capability)]
    pub capabilities: Vec<Capability>,
    /// The seccomp profile
    #[arg(long, value_name = "NAME", default_value_t, value_enum)]
    pub seccomp: Profile,
    /// What may be written in spite of the read-only root: a mount of its own
    #[arg(long, value_name = "PATH")]
    pub writable: Vec<PathBuf>,
    /// An image, unpacked in a directory: the program is what it has in /usr/local/bin by that name
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// What of the host is seen in it besides
    #[arg(long = "mount", value_name = "FROM:TO")]
    pub mounts: Vec<Mount>,
}

/// A capability by the name that pods use.
fn capability(name: &str) -> Result<Capability, String> {
    let of_kernel = format!("CAP_{name}");
    let known = of_kernel.parse();
    known.map_err(|_| format!("no capability is called {name}"))
}

impl Container {
    /// One whose process holds these capabilities.
    pub fn with(capabilities: &[Capability]) -> Self {
        Self {
            capabilities: capabilities.to_vec(),
            ..Self::default()
        }
    }

    /// A command line that executes what follows it in such a container.
    pub fn launcher(&self) -> Result<Vec<OsString>> {
        let mut words = vec![executable::pod()?.into(), "contain".into()];
        for one in &self.capabilities {
            let name = one.to_string();
            let name = name.strip_prefix("CAP_").unwrap_or(&name);
            words.push(format!("--capability={name}").into());
        }
        words.push(format!("--seccomp={}", self.seccomp).into());
        for path in &self.writable {
            words.extend(["--writable".into(), path.into()]);
        }
        if let Some(root) = &self.root {
            words.extend(["--root".into(), root.into()]);
        }
        for Mount { from, to } in &self.mounts {
            let mount = format!("{}:{}", from.display(), to.display());
            words.extend(["--mount".into(), mount.into()]);
        }
        words.push("--".into());
        Ok(words)
    }

    /// Puts this process, which must have one thread, into the container, and executes `command`
    /// there in its place.
    pub fn execute(&self, command: &[OsString]) -> Result<Infallible> {
        let (program, arguments) = command.split_first().context("no command is given")?;
        let mut program = PathBuf::from(program);
        match &self.root {
            None => mounts::make_read_only_but(&self.writable)?,
            Some(root) => {
                root::enter(root, &self.mounts, &self.writable)?;
                let name = program.file_name().context("a program has a name")?;
                program = Path::new(PROGRAMS).join(name);
            }
        }
        self.keep_capabilities()?;
        // Last, because it denies much of the above.
        seccomp::apply(self.seccomp, &self.capabilities)?;
        let error = Command::new(&program).args(arguments).exec();
        Err(error).with_context(|| format!("cannot execute {}", program.display()))
    }

    /// Drops the others from every set. Root gets what is in the bounding set with each execve(2).
    fn keep_capabilities(&self) -> Result<()> {
        let kept: CapsHashSet = self.capabilities.iter().copied().collect();
        for one in caps::runtime::thread_all_supported().difference(&kept) {
            caps::drop(None, CapSet::Bounding, *one).with_context(|| format!("dropping {one}"))?;
        }
        caps::clear(None, CapSet::Inheritable).context("clearing the inheritable set")?;
        for set in [CapSet::Effective, CapSet::Permitted] {
            caps::set(None, set, &kept).with_context(|| format!("setting {set:?}"))?;
        }
        Ok(())
    }
}
