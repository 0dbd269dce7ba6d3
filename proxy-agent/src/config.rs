//! What the user asked for, in two steps: as typed (`cli`, and a file that `kube_proxy` knows),
//! then what it means, checked as a whole so that every mistake is reported at once.

mod asking;
pub mod cli;
pub mod kube_proxy;
pub mod reference;
mod sources;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use proxy_common::names::MAPS;
use thiserror::Error;

pub use self::{
    asking::{admin_socket, check, wanted_node},
    sources::Source,
};
use self::{
    cli::{NodeArgs, PinArgs, RunArgs},
    kube_proxy::{Given, Settings},
};
use crate::{admin, backend::ebpf, serving};

/// What `run` needs.
#[derive(Debug, Clone)]
pub struct Run {
    /// Where cluster objects come from.
    pub source: Source,
    /// The node, and what decides where its traffic goes.
    pub model: proxy_model::Settings,
    /// The dataplane.
    pub ebpf: ebpf::Options,
    /// How often the kernel is compared with the desired state.
    pub sync_period: Duration,
    /// Where `state` and `explain` ask.
    pub admin_socket: PathBuf,
    /// What is served over HTTP.
    pub serving: serving::Options,
    /// -1000 (never) to 1000 (first): how the kernel chooses whom to end when memory runs out.
    pub oom_score_adj: i32,
    /// What the log should say about the configuration.
    pub warnings: Vec<String>,
}

/// Every mistake in what was typed.
#[derive(Debug, Error)]
#[error("{}", .mistakes.join("\n"))]
pub struct ConfigError {
    /// One text each, naming the flag.
    pub mistakes: Vec<String>,
}

/// Checks the arguments of `run`, and reads the configuration file.
pub fn run(args: &RunArgs) -> Result<Run, ConfigError> {
    // Kubernetes sets it in every container.
    let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    run_where(args, in_pod)
}

fn run_where(args: &RunArgs, in_pod: bool) -> Result<Run, ConfigError> {
    let mut mistakes = Vec::new();
    let settings = settings(args.file.config.as_deref(), &args.given(), &mut mistakes);
    // A file that cannot be used may well name the source: that is one mistake, not two.
    let elsewhere = in_pod || !mistakes.is_empty();
    let source = sources::choose(args, settings.kubeconfig.clone(), elsewhere, &mut mistakes);
    let node = node_name(&args.node, settings.node_name.clone(), &mut mistakes);
    let pin_dir = absolute_pin_dir(&args.pins, &mut mistakes);
    let map_sizes = map_sizes(&args.map_sizes, &mut mistakes);
    let (Some(source), true) = (source, mistakes.is_empty()) else {
        return Err(ConfigError { mistakes });
    };
    Ok(Run {
        source,
        model: settings.model(node),
        admin_socket: args
            .admin_socket
            .clone()
            .unwrap_or_else(|| admin::socket_path(&pin_dir)),
        ebpf: ebpf::Options {
            pin_dir,
            cgroup_path: args.cgroup_path.clone(),
            map_sizes,
            kernel_log: args.kernel_log,
        },
        sync_period: settings.sync_period,
        serving: serving::Options {
            healthz: settings.healthz,
            metrics: settings.metrics,
            hard_fail: settings.hard_fail,
            configuration: settings.effective,
        },
        oom_score_adj: settings.oom_score_adj,
        warnings: settings.notices.iter().map(ToString::to_string).collect(),
    })
}

/// What the file and the flags mean together; defaults if they are wrong, so that mistakes
/// elsewhere are found too.
fn settings(file: Option<&Path>, given: &[Given], mistakes: &mut Vec<String>) -> Settings {
    let text = file.and_then(|path| match fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) => {
            mistakes.push(format!(
                "--config {}: reading the file: {error}; name a file that holds a \
                 KubeProxyConfiguration",
                path.display()
            ));
            None
        }
    });
    kube_proxy::settle(text.as_deref(), given).unwrap_or_else(|wrong| {
        mistakes.extend(wrong.iter().map(|mistake| match (mistake.flag, file) {
            (None, Some(path)) => format!("--config {}: {mistake}", path.display()),
            _ => mistake.to_string(),
        }));
        kube_proxy::settle(None, &[]).expect("defaults hold no mistakes")
    })
}

/// What a command needs that computes the state once.
#[derive(Debug)]
pub struct Once {
    /// Manifest files and directories, at least one.
    pub manifests: Vec<PathBuf>,
    /// The node, and what decides where its traffic goes.
    pub model: proxy_model::Settings,
    /// What the user should know about the configuration file.
    pub warnings: Vec<String>,
}

/// Checks the arguments of a command that computes the state once.
pub fn once(args: &NodeArgs, file: Option<&Path>) -> Result<Once, ConfigError> {
    let mut mistakes = Vec::new();
    let settings = settings(file, &[], &mut mistakes);
    if args.manifests.is_empty() {
        mistakes.push(sources::NO_MANIFESTS.to_owned());
    }
    let node = node_name(args, settings.node_name.clone(), &mut mistakes);
    if mistakes.is_empty() {
        Ok(Once {
            manifests: args.manifests.clone(),
            model: settings.model(node),
            warnings: settings.notices.iter().map(ToString::to_string).collect(),
        })
    } else {
        Err(ConfigError { mistakes })
    }
}

/// Checks the arguments of `cleanup`.
pub fn pin_dir(args: &PinArgs) -> Result<PathBuf, ConfigError> {
    let mut mistakes = Vec::new();
    let pin_dir = absolute_pin_dir(args, &mut mistakes);
    if mistakes.is_empty() {
        Ok(pin_dir)
    } else {
        Err(ConfigError { mistakes })
    }
}

/// What a relative path means depends on where the agent is started: too much for a directory
/// that the next agent must find, or that is removed.
fn absolute_pin_dir(args: &PinArgs, mistakes: &mut Vec<String>) -> PathBuf {
    if !args.pin_dir.is_absolute() {
        mistakes.push(format!(
            "--pin-dir {}: must be an absolute path, such as {}",
            args.pin_dir.display(),
            cli::DEFAULT_PIN_DIR
        ));
    }
    args.pin_dir.clone()
}

/// The node's name as kube-proxy finds it: as given, as configured, or the host's; trimmed and in
/// lower case.
fn node_name(args: &NodeArgs, configured: Option<String>, mistakes: &mut Vec<String>) -> Arc<str> {
    let host_name = || nix::unistd::gethostname().ok()?.into_string().ok();
    let given = args.node_name.clone().or(configured);
    let Some(name) = given.or_else(host_name) else {
        mistakes.push("--node-name: the host has no usable name, so one must be given".into());
        return "".into();
    };
    let name = normal_node_name(&name);
    if name.is_empty() {
        mistakes.push("--node-name: must not be empty".into());
    }
    name.into()
}

fn normal_node_name(typed: &str) -> String {
    typed.trim().to_lowercase()
}

fn map_sizes(typed: &[String], mistakes: &mut Vec<String>) -> BTreeMap<String, u32> {
    let sizable = || {
        MAPS.iter()
            .filter(|shape| shape.sizable)
            .map(|shape| shape.name)
    };
    let mut sizes = BTreeMap::new();
    for text in typed {
        let Some((name, entries)) = text.split_once('=') else {
            mistakes.push(format!(
                "--map-size {text}: must have the form NAME=ENTRIES"
            ));
            continue;
        };
        if !sizable().any(|known| known == name) {
            let names: Vec<_> = sizable().collect();
            mistakes.push(format!(
                "--map-size {text}: there is no map {name} with a size to choose; choose from {}",
                names.join(", ")
            ));
            continue;
        }
        match entries.parse::<u32>() {
            Ok(entries) if (1..=MOST_ENTRIES).contains(&entries) => {
                sizes.insert(name.to_owned(), entries);
            }
            _ => mistakes.push(format!(
                "--map-size {text}: entries must be a whole number from 1 to {MOST_ENTRIES}"
            )),
        }
    }
    sizes
}

/// The kernel refuses hash maps of more buckets than fit 4 GiB; this is far above any cluster.
const MOST_ENTRIES: u32 = 1 << 26;
