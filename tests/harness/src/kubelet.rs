//! What kubelet and a container runtime make of a pod, on the node of a [`World`]: init containers
//! one after the other, the container with exactly the file system, environment and rights that its
//! specification asks for, and its probes.
//!
//! ```text
//! PodSpec ──> setting (environment, volumes, rights) ──> Container ──> culvert-pod contain ──> process
//!        └──> probes ──> HTTP to the node
//! ```
//!
//! Pods have the node's network, as a service proxy's have, and one container that stays. What a
//! specification asks for beyond what is here is an error, never passed over.

mod host;
mod pod;
mod probes;
mod setting;
mod volumes;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::Result;
use k8s_openapi::api::core::v1::PodSpec;

use crate::world::World;
use host::HostFiles;
pub use pod::Pod;
pub use setting::expanded;

/// What else of a cluster a pod refers to.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Name of the node.
    pub node_name: String,
    /// Namespace of the pods.
    pub namespace: String,
    /// Files of config maps, by the map's name.
    pub config_maps: BTreeMap<String, BTreeMap<String, String>>,
    /// Token and certificate authority of the service account; none is mounted without.
    pub service_account: Option<(String, String)>,
}

/// The BPF file system of a node before anybody does something about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bpffs {
    /// Mounted, as by systemd.
    Mounted,
    /// An empty directory.
    Absent,
}

/// Runs pods on a node.
#[derive(Debug)]
pub struct Kubelet<'w> {
    world: &'w World,
    host: HostFiles,
}

impl<'w> Kubelet<'w> {
    /// On the node of this world, with files of its own where pods mount them from the host.
    pub fn new(world: &'w World, bpffs: Bpffs) -> Result<Self> {
        let host = HostFiles::new(world.cgroup().path(), bpffs)?;
        Ok(Self { world, host })
    }

    /// Starts a pod from an unpacked image: its init containers have ended well when this returns, and
    /// its container has been started.
    pub fn start(&self, spec: &PodSpec, image: &Path, around: &Surroundings) -> Result<Pod<'w>> {
        Pod::start(self.world, &self.host, spec, image, around)
    }

    /// Where this process sees what is at `path` on the node.
    pub fn seen(&self, path: &str) -> PathBuf {
        self.host.seen(Path::new(path))
    }

    /// A program of this machine as root of the node: with its files and its network.
    pub fn on_node(&self, program: &Path) -> Result<std::process::Command> {
        let mut command = self.host.command(program);
        let netns = std::os::fd::AsFd::as_fd(self.world.node().netns());
        crate::process::enter(&mut command, Some(netns), None)?;
        Ok(command)
    }
}
