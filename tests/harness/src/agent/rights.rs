//! What an agent under test may do on its host: no more than where it is installed.

use std::{ffi::OsString, path::Path};

use anyhow::{Context as _, Result};
use caps::Capability;
use nix::sys::utsname::uname;

use super::AdminDirectory;
use crate::{
    bpffs,
    container::{Container, Volume},
    executable,
};

/// Rights of an agent.
#[derive(Debug, Clone, Default)]
pub enum Rights {
    /// A container with what the agent needs for the backends of its command line.
    #[default]
    OfMode,
    /// This container. What every agent writes can be written in it.
    Exactly(Container),
    /// All that the test has.
    Root,
}

/// Where images have the agent.
const IN_IMAGE: &str = "/usr/local/bin/proxy-agent";
/// Where the lock of iptables is, which `--take-over` calls, and mode `iptables`.
const LOCKED_IN: &str = "/run";

/// How a mode, or an order of backends, ends of which one calls the programs of iptables.
const CALLS: [&str; 2] = ["=iptables", ",iptables"];

const FOR_RULES: [Capability; 1] = [Capability::CAP_NET_ADMIN];
const FOR_PROGRAMS: [Capability; 3] = [
    Capability::CAP_BPF,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_PERFMON,
];

impl Rights {
    /// The start of a command line that gives an agent with these `arguments` its rights.
    pub fn launcher(
        &self,
        arguments: &[String],
        admin_directory: &AdminDirectory,
    ) -> Result<Vec<OsString>> {
        let mut container = match self {
            Self::OfMode => of_mode(arguments)?,
            Self::Exactly(container) => container.clone(),
            Self::Root => return Ok(Vec::new()),
        };
        let written = [admin_directory.path(), Path::new(bpffs::MOUNT_POINT)].map(Path::to_owned);
        match &mut container.image {
            Some(image) => image.volumes.extend(written.map(Volume::shared)),
            None => container.writable.extend(written),
        }
        container.launcher()
    }

    /// Where the agent is that is started with these rights.
    pub fn agent(&self) -> Result<&Path> {
        match self {
            Self::Exactly(container) if container.image.is_some() => Ok(Path::new(IN_IMAGE)),
            _ => executable::agent(),
        }
    }
}

fn of_mode(arguments: &[String]) -> Result<Container> {
    let has = |wanted: &str| arguments.iter().any(|one| one == wanted);
    let rules = ["--proxy-mode=nftables", "--proxy-mode=iptables"];
    let mut container = if rules.into_iter().any(has) {
        Container::with(&FOR_RULES)
    } else {
        Container::with(&for_programs()?)
    };
    let calls_iptables = arguments
        .iter()
        .any(|one| CALLS.iter().any(|calls| one.ends_with(calls)));
    if calls_iptables || has("--take-over") {
        // iptables of the legacy flavour asks the kernel through a raw socket.
        container.capabilities.push(Capability::CAP_NET_RAW);
        container.writable.push(LOCKED_IN.into());
    }
    Ok(container)
}

/// What programs and maps take on this kernel.
pub fn for_programs() -> Result<Vec<Capability>> {
    let mut all = Vec::from(FOR_PROGRAMS);
    if charges_locked_memory()? {
        all.push(Capability::CAP_SYS_RESOURCE);
    }
    Ok(all)
}

/// Whether the kernel counts maps against a limit that only this capability raises: before 5.11.
fn charges_locked_memory() -> Result<bool> {
    let uname = uname().context("cannot ask for the kernel's release")?;
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split('.').map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        anyhow::bail!("the kernel's release {release} does not begin with two numbers");
    };
    Ok((major, minor) < (5, 11))
}
