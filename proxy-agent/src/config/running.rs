//! What `run` means: everything that the agent needs to serve.

mod sinks;
mod sources;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use proxy_common::names::MAPS;
use proxy_model::NodePortSelection;

pub use self::sources::Source;
use super::{ConfigError, absolute_pin_dir, cli::RunArgs, node_name, settings};
use crate::{
    admin,
    backend::{choice::Mode, ebpf},
    serving,
    sinks::file::Output,
};

/// What `run` needs.
#[derive(Debug, Clone)]
pub struct Run {
    /// Where cluster objects come from.
    pub source: Source,
    /// The node, and what decides where its traffic goes.
    pub model: proxy_model::Settings,
    /// Which backend is asked for.
    pub mode: Mode,
    /// The dataplane.
    pub ebpf: ebpf::Options,
    /// How often the kernel is compared with the desired state.
    pub sync_period: Duration,
    /// Where `state` and `explain` ask.
    pub admin_socket: PathBuf,
    /// The file that holds the newest state, if one is wanted.
    pub output: Option<Output>,
    /// What is served over HTTP.
    pub serving: serving::Options,
    /// -1000 (never) to 1000 (first): how the kernel chooses whom to end when memory runs out.
    pub oom_score_adj: i32,
    /// What the log should say about the configuration.
    pub warnings: Vec<String>,
    /// What is worth knowing about it, although it is as usual.
    pub notes: Vec<String>,
}

/// Checks the arguments of `run`, and reads the configuration file.
pub fn run(args: &RunArgs) -> Result<Run, ConfigError> {
    // Kubernetes sets it in every container.
    let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    run_where(args, in_pod)
}

fn run_where(args: &RunArgs, in_pod: bool) -> Result<Run, ConfigError> {
    let mut mistakes = Vec::new();
    let settings = settings(args.model.config.as_deref(), &args.given(), &mut mistakes);
    // A file that cannot be used may well name the source: that is one mistake, not two.
    let elsewhere = in_pod || !mistakes.is_empty();
    let source = sources::choose(args, settings.kubeconfig.clone(), elsewhere, &mut mistakes);
    let node = node_name(&args.model.node, settings.node_name.clone(), &mut mistakes);
    let pin_dir = absolute_pin_dir(&args.pins, &mut mistakes);
    let map_sizes = map_sizes(&args.map_sizes, &mut mistakes);
    let output = sinks::output(&args.sinks, &mut mistakes);
    let (Some(source), true) = (source, mistakes.is_empty()) else {
        return Err(ConfigError { mistakes });
    };
    Ok(Run {
        source,
        mode: settings.mode,
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
        output,
        serving: serving::Options {
            healthz: settings.healthz,
            metrics: settings.metrics,
            hard_fail: settings.hard_fail,
            configuration: settings.effective,
        },
        oom_score_adj: settings.oom_score_adj,
        notes: notes(&settings.node_ports),
        warnings: settings.notices.iter().map(ToString::to_string).collect(),
    })
}

/// kube-proxy says this at start, too.
fn notes(node_ports: &NodePortSelection) -> Vec<String> {
    let everywhere = "nodePortAddresses: is unset: NodePorts answer on every address of this node; \
                      --nodeport-addresses=primary leaves only the node's own";
    match node_ports {
        NodePortSelection::All => vec![everywhere.to_owned()],
        NodePortSelection::Primary | NodePortSelection::Cidrs(_) => Vec::new(),
    }
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
