//! What a container runtime leaves the process of a container: a file system, the capabilities that
//! its pod names, a seccomp filter, and no way to more.
//!
//! `culvert-pod contain` is that runtime, as far as agents can tell. It shares the network, as pods
//! that ask for the host's do, and, unlike a runtime, the process ids. Without an [image](Image) it
//! takes this host's file system, read-only.

mod image;
mod mounts;
mod seccomp;

use std::{
    convert::Infallible, ffi::OsString, os::unix::process::CommandExt as _, path::PathBuf,
    process::Command,
};

use anyhow::{Context as _, Result, anyhow};
pub use caps::Capability;
use caps::{CapSet, CapsHashSet};
use nix::sys::prctl;
use serde::{Deserialize, Serialize};

use crate::executable;
pub use image::{Image, PATH, Propagation, Volume};
pub use seccomp::Profile;

/// A container, as the security context and the volumes of a pod describe it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// What is left of root's rights.
    pub capabilities: Vec<Capability>,
    /// The seccomp profile.
    pub seccomp: Profile,
    /// Whether programs may get rights by being executed.
    pub may_gain_rights: bool,
    /// What may be written of this host's read-only file system: a mount of its own. Without meaning
    /// for an image.
    pub writable: Vec<PathBuf>,
    /// The file system, if it is not this host's.
    pub image: Option<Image>,
    /// The process of a container of this image that runs already, and whose files this one is to
    /// share: as what `kubectl exec` starts.
    pub beside: Option<i32>,
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
        let container = serde_json::to_string(self).context("a container cannot be written")?;
        let words = [executable::pod()?.into(), "contain".into()];
        let words = words.into_iter().chain([container.into(), "--".into()]);
        Ok(words.collect())
    }

    /// Puts this process, which must have one thread, into the container, and executes `command`
    /// there in its place.
    pub fn execute(&self, command: &[OsString]) -> Result<Infallible> {
        let (program, arguments) = command.split_first().context("no command is given")?;
        let mut command = Command::new(program);
        command.args(arguments);
        match (&self.image, self.beside) {
            (Some(image), None) => image.enter()?,
            (_, Some(process)) => mounts::share_with(process)?,
            (None, None) => mounts::make_read_only_but(&self.writable)?,
        }
        if let Some(image) = &self.image {
            command.env_clear().envs(&image.environment);
        }
        self.keep_capabilities()?;
        if !self.may_gain_rights {
            prctl::set_no_new_privs().context("cannot rule out more rights")?;
        }
        // Last, because it denies much of the above.
        seccomp::apply(self.seccomp, &self.capabilities)?;
        let error = command.exec();
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

/// A capability by the name that pods use: `NET_ADMIN`.
pub fn capability(name: &str) -> Result<Capability> {
    let of_kernel = format!("CAP_{name}");
    let known = of_kernel.parse();
    known.map_err(|_| anyhow!("no capability is called {name}"))
}

/// What is left to a privileged container: all that this process may have.
pub fn all_capabilities() -> Result<Vec<Capability>> {
    let all = caps::read(None, CapSet::Permitted).context("own capabilities")?;
    Ok(all.into_iter().collect())
}
