//! A container of a pod, as a container runtime is told to run it: with what kubelet fills in.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::{
    api::core::v1::{self as core, PodSpec, SecurityContext},
    apimachinery::pkg::util::intstr::IntOrString,
};

use crate::{
    container::{Capability, capability},
    kubelet::expanded,
};

/// A container.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// The image.
    pub image: String,
    /// The command line without the arguments, which takes the place of the image's.
    pub command: Vec<String>,
    /// The arguments as they are written: with `$(NAME)`.
    pub args: Vec<String>,
    /// Variables with a value, and those that kubelet gives a field of the pod.
    pub env: Vec<(String, Given)>,
    /// What is mounted, in the order of the pod.
    pub mounts: Vec<Mount>,
    /// As it is written.
    pub security: SecurityContext,
    /// The type of the seccomp profile: the container's own, or the pod's.
    pub seccomp: Option<String>,
    /// Whether it is in the node's network namespace.
    pub host_network: bool,
    /// The probes that there are.
    pub startup: Option<Probe>,
    /// The same.
    pub liveness: Option<Probe>,
    /// The same.
    pub readiness: Option<Probe>,
}

/// What a variable is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Given {
    /// This.
    Value(String),
    /// A field of the pod: `spec.nodeName`.
    Field(String),
}

/// A volume at its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// In the container.
    pub at: PathBuf,
    /// What is there.
    pub source: Source,
    /// Whether it cannot be written.
    pub read_only: bool,
    /// `None`, `HostToContainer`, `Bidirectional`.
    pub propagation: String,
}

/// What is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A path of the host, with the type that is checked, such as `Directory`.
    Host(PathBuf, String),
    /// The files of a ConfigMap.
    ConfigMap(String),
    /// Anything else, by the name of its volume.
    Other(String),
}

/// An HTTP probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The host, if it is not the pod's first address.
    pub host: Option<String>,
    /// The port.
    pub port: u16,
    /// The path.
    pub path: String,
    /// In seconds.
    pub period: i32,
    /// In seconds.
    pub timeout: i32,
    /// How many in a row count.
    pub failures: i32,
}

impl Part {
    pub(super) fn of(pod: &PodSpec, one: &core::Container, host_network: bool) -> Result<Self> {
        let of = || format!("container {}", one.name);
        let env = one.env.iter().flatten().map(given);
        let mounts = one.volume_mounts.iter().flatten();
        let security = one.security_context.clone().unwrap_or_default();
        let of_pod = pod.security_context.as_ref();
        let own = security.seccomp_profile.as_ref();
        let seccomp = own.or(of_pod.and_then(|context| context.seccomp_profile.as_ref()));
        let probe = |probe: &Option<core::Probe>| probe.as_ref().map(Probe::of).transpose();
        Ok(Self {
            name: one.name.clone(),
            image: one.image.clone().with_context(of)?,
            command: one.command.clone().unwrap_or_default(),
            args: one.args.clone().unwrap_or_default(),
            env: env.collect::<Result<_>>().with_context(of)?,
            mounts: mounts
                .map(|mount| Mount::of(pod, mount))
                .collect::<Result<_>>()
                .with_context(of)?,
            seccomp: seccomp.map(|profile| profile.type_.clone()),
            security,
            host_network,
            startup: probe(&one.startup_probe).with_context(of)?,
            liveness: probe(&one.liveness_probe).with_context(of)?,
            readiness: probe(&one.readiness_probe).with_context(of)?,
        })
    }

    /// The variables, where `field` says what the pod's fields are.
    pub fn environment(
        &self,
        field: impl Fn(&str) -> Option<String>,
    ) -> Result<BTreeMap<String, String>> {
        let value = |(name, given): &(String, Given)| {
            let value = match given {
                Given::Value(value) => value.clone(),
                Given::Field(path) => {
                    field(path).with_context(|| format!("{name}: the pod's field {path}"))?
                }
            };
            Ok((name.clone(), value))
        };
        self.env.iter().map(value).collect()
    }

    /// The whole command line, as kubelet fills it in.
    pub fn command_line(&self, environment: &BTreeMap<String, String>) -> Vec<String> {
        let words = self.command.iter().chain(&self.args);
        words.map(|word| expanded(word, environment)).collect()
    }

    /// What is left of root's rights, if the others are taken away.
    pub fn capabilities(&self) -> Result<Vec<Capability>> {
        let capabilities = self.security.capabilities.clone().unwrap_or_default();
        let dropped = capabilities.drop.unwrap_or_default();
        if dropped != ["ALL"] {
            bail!(
                "container {}: not all capabilities are dropped: {dropped:?}",
                self.name
            );
        }
        let added = capabilities.add.unwrap_or_default();
        added.iter().map(|name| capability(name)).collect()
    }
}

fn given(variable: &core::EnvVar) -> Result<(String, Given)> {
    let name = variable.name.clone();
    let Some(source) = &variable.value_from else {
        return Ok((
            name,
            Given::Value(variable.value.clone().unwrap_or_default()),
        ));
    };
    match &source.field_ref {
        Some(field) => Ok((name, Given::Field(field.field_path.clone()))),
        None => bail!("variable {name} is from {source:?}"),
    }
}

impl Mount {
    fn of(pod: &PodSpec, mount: &core::VolumeMount) -> Result<Self> {
        let mut volumes = pod.volumes.iter().flatten();
        let volume = volumes.find(|volume| volume.name == mount.name);
        let volume = volume.with_context(|| format!("there is no volume {}", mount.name))?;
        let source = match (&volume.host_path, &volume.config_map) {
            (Some(host), _) => Source::Host(
                host.path.clone().into(),
                host.type_.clone().unwrap_or_default(),
            ),
            (_, Some(map)) => Source::ConfigMap(map.name.clone()),
            _ => Source::Other(volume.name.clone()),
        };
        let propagation = mount.mount_propagation.as_deref();
        Ok(Self {
            at: mount.mount_path.clone().into(),
            source,
            read_only: mount.read_only == Some(true),
            propagation: propagation.unwrap_or("None").to_owned(),
        })
    }
}

impl Probe {
    fn of(probe: &core::Probe) -> Result<Self> {
        let get = probe.http_get.as_ref().context("a probe without HTTP")?;
        let IntOrString::Int(port) = get.port else {
            bail!("the port of a probe is {:?}", get.port);
        };
        Ok(Self {
            host: get.host.clone(),
            port: port.try_into()?,
            path: get.path.clone().unwrap_or_else(|| "/".to_owned()),
            // As the API server fills in.
            period: probe.period_seconds.unwrap_or(10),
            timeout: probe.timeout_seconds.unwrap_or(1),
            failures: probe.failure_threshold.unwrap_or(3),
        })
    }
}
