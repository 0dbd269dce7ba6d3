//! What `run` and `brain` mean: everything that the agent needs.

mod node_api;
mod sinks;
mod sources;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use proxy_backend::{BackendKind, Settings as BackendSettings};
use proxy_model::NodePortSelection;
use serde_json::Value;

pub use self::{
    node_api::{Brain, Listen},
    sources::SourceOptions,
};
use super::{
    ConfigError, absolute_pin_dir,
    cli::{AgentArgs, BrainArgs, RunArgs},
    kube_proxy::{
        Given, Settings,
        fields::{MODE, OWN_MODE},
    },
    node_name, settings, settings_of,
};
use crate::{
    admin, backend::choice::Mode, backends, host::settings::HostSettings, serving,
    sinks::file::Destination,
};

/// What an agent needs, whatever it makes of the state.
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// Where cluster objects come from.
    pub source: SourceOptions,
    /// The node, and what decides where its traffic goes.
    pub model: proxy_model::Settings,
    /// How often the kernel is compared with the desired state.
    pub sync_period: Duration,
    /// Where `state` and `explain` ask.
    pub admin_socket: PathBuf,
    /// The file that holds the newest state, if one is wanted.
    pub output: Option<Destination>,
    /// Where backends in other processes hear of it.
    pub listen: Listen,
    /// Whether this host is the node, so that its interfaces tell the node's addresses.
    pub on_its_node: bool,
    /// What is served over HTTP.
    pub serving: serving::ServingOptions,
    /// -1000 (never) to 1000 (first): how the kernel chooses whom to end when memory runs out.
    pub oom_score_adj: i32,
    /// kube-proxy's verbosity, where it is what decides what is logged.
    pub verbosity: Option<i32>,
    /// What the log should say about the configuration.
    pub warnings: Vec<String>,
    /// What is worth knowing about it, although it is as usual.
    pub notes: Vec<String>,
}

/// What `run` needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// What every agent needs.
    pub agent: Agent,
    /// Which backend is asked for.
    pub mode: Mode,
    /// In which order backends are preferred where the mode names none.
    pub order: Vec<BackendKind>,
    /// Whether what kube-proxy left is removed.
    pub take_over: bool,
    /// What connection tracking of the host is set to.
    pub host: HostSettings,
    /// What backends are told.
    pub backends: BackendSettings,
}

/// Checks the arguments of `run`, and reads the configuration file, unless its text is known.
pub fn run(args: &RunArgs, text: Option<&str>) -> Result<Run, ConfigError> {
    run_where(args, text, in_pod())
}

/// Checks the arguments of `brain`, and reads the configuration file, unless its text is known.
pub fn brain(args: &BrainArgs, text: Option<&str>) -> Result<Agent, ConfigError> {
    brain_where(args, text, in_pod())
}

/// Kubernetes sets this in every container.
fn in_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

fn run_where(args: &RunArgs, text: Option<&str>, in_pod: bool) -> Result<Run, ConfigError> {
    let mut mistakes = Vec::new();
    let name = |settings: &Settings| {
        let kind = settings.mode.required();
        let kind = kind.or_else(|| settings.order.first().copied());
        kind.map_or("node", |kind| kind.name())
    };
    let given = args.given();
    let (settings, mut prepared) = prepare(&args.agent, text, &given, name, in_pod, &mut mistakes);
    prepared.warnings.extend(args.idle.deprecated());
    let pin_dir = absolute_pin_dir(&args.pins, &mut mistakes);
    // Those that have a field were looked at with the file.
    let mut of_backends = args.backends.of_no_field();
    let wrong = BackendKind::mistakes(backends::ALL, &of_backends);
    mistakes.extend(wrong.iter().map(ToString::to_string));
    of_backends.extend(settings.backends.clone());
    let admin_socket = args.admin_socket.clone();
    let admin_socket = admin_socket.unwrap_or_else(|| admin::socket_path(&pin_dir));
    let (mode, order) = (settings.mode, settings.order.clone());
    let (masquerade_mark, timeouts) = (settings.masquerade_mark, settings.timeouts);
    Ok(Run {
        order,
        take_over: args.take_over,
        host: settings.host,
        agent: prepared.agent(&settings, admin_socket, mistakes)?,
        mode,
        backends: BackendSettings {
            pin_dir,
            masquerade_mark,
            tcp_be_liberal: settings.host.tcp_be_liberal,
            timeouts,
            given: of_backends,
            ..BackendSettings::default()
        },
    })
}

/// A brain that tells nobody is of no use.
const NO_SINK: &str = "no sink was given, so the state would reach no client: give --listen for \
                       backends that connect, or --output-file";

fn brain_where(args: &BrainArgs, text: Option<&str>, in_pod: bool) -> Result<Agent, ConfigError> {
    let mut mistakes = Vec::new();
    let given = args.agent.given();
    let (mut settings, prepared) = prepare(
        &args.agent,
        text,
        &given,
        |_| "brain",
        in_pod,
        &mut mistakes,
    );
    if prepared.output.is_none() && args.agent.sinks.api.listen.is_empty() {
        mistakes.push(NO_SINK.to_owned());
    }
    // They would say which backend serves in the place of kube-proxy's: none does here.
    let modes = [MODE, OWN_MODE];
    settings
        .notices
        .retain(|notice| !modes.contains(&&*notice.field));
    let agent = prepared.agent(&settings, args.admin_socket.clone(), mistakes)?;
    Ok(Agent {
        on_its_node: !args.elsewhere,
        ..agent
    })
}

/// What was found out before all mistakes are known.
struct Prepared {
    source: Option<SourceOptions>,
    node: Arc<str>,
    output: Option<Destination>,
    listen: Listen,
    flags: BTreeMap<String, String>,
    verbosity: Option<i32>,
    warnings: Vec<String>,
}

/// `name` is how the agent calls itself before a brain, unless the user says otherwise.
fn prepare(
    args: &AgentArgs,
    text: Option<&str>,
    given: &[Given],
    name: impl FnOnce(&Settings) -> &'static str,
    in_pod: bool,
    mistakes: &mut Vec<String>,
) -> (Settings, Prepared) {
    let file = args.model.config.as_deref();
    let settings = match text {
        Some(_) => settings_of(file, text, given, mistakes),
        None => settings(file, given, mistakes),
    };
    // A file that cannot be used may well name the source: that is one mistake, not two.
    let elsewhere = in_pod || (file.is_some() && !mistakes.is_empty());
    let node = node_name(&args.model.node, settings.node_name.clone(), mistakes);
    let given = [&args.model.node.node_name, &settings.node_name];
    let named = given.into_iter().flatten().any(|name| !name.is_empty());
    let wanted = named.then(|| Arc::clone(&node));
    let brain = node_api::brain(&args.target, name(&settings), wanted, mistakes);
    let kubeconfig = settings.kubeconfig.clone();
    let prepared = Prepared {
        warnings: node_api::idle(args, &settings)
            .into_iter()
            .chain(node_api::unheard(&args.sinks.api))
            .collect(),
        source: sources::choose(args, brain, kubeconfig, elsewhere, mistakes),
        node,
        flags: args.flags.clone(),
        verbosity: args
            .log
            .log_level
            .is_none()
            .then_some(settings.verbosity)
            .filter(|verbosity| *verbosity > 0),
        output: sinks::output(&args.sinks, mistakes),
        listen: node_api::listen(&args.sinks.api, mistakes),
    };
    (settings, prepared)
}

impl Prepared {
    /// The agent, unless there are mistakes.
    fn agent(
        self,
        settings: &Settings,
        admin_socket: PathBuf,
        mistakes: Vec<String>,
    ) -> Result<Agent, ConfigError> {
        let (Some(source), true) = (self.source, mistakes.is_empty()) else {
            return Err(ConfigError { mistakes });
        };
        // Where NodePorts answer is the brain's matter.
        let notes = if source.is_brain() {
            Vec::new()
        } else {
            notes(settings)
        };
        let configuration = in_effect(settings, &self.node, &source);
        let notices = settings.notices.iter().map(ToString::to_string);
        let warnings = notices.chain(self.warnings).collect();
        Ok(Agent {
            source,
            model: settings.model(self.node),
            sync_period: settings.sync_period,
            admin_socket,
            output: self.output,
            listen: self.listen,
            on_its_node: true,
            serving: serving::ServingOptions {
                healthz: settings.healthz,
                metrics: settings.metrics,
                hard_fail: settings.hard_fail,
                profiling: configuration["enableProfiling"] == true,
                configuration,
                flags: self.flags,
                backends: backends::ALL.iter().map(|kind| kind.name()).collect(),
            },
            oom_score_adj: settings.oom_score_adj,
            verbosity: self.verbosity,
            notes,
            warnings,
        })
    }
}

/// Every field as it is in effect: what was found out, or given by a flag that stands for no field,
/// included. What is not honoured is as it was written.
fn in_effect(settings: &Settings, node: &str, source: &SourceOptions) -> Value {
    let mut all = settings.effective.clone();
    all["mode"] = settings.mode.as_str().into();
    // The name is the brain's where one is followed, and so is where NodePorts answer.
    if !source.is_brain() {
        all["hostnameOverride"] = node.into();
        if settings.node_ports == NodePortSelection::Primary {
            all["nodePortAddresses"] = vec!["primary"].into();
        }
    }
    let kubeconfig = match source {
        SourceOptions::ApiServer { kubeconfig, .. } => kubeconfig.as_deref(),
        SourceOptions::Manifests(_) | SourceOptions::Brain(_) => None,
    };
    let kubeconfig = kubeconfig.map(|path| path.display().to_string());
    all["clientConnection"]["kubeconfig"] = kubeconfig.unwrap_or_default().into();
    all
}

/// kube-proxy says this at start, too.
fn notes(settings: &Settings) -> Vec<String> {
    let unset = settings.effective["nodePortAddresses"]
        .as_array()
        .is_none_or(Vec::is_empty);
    let primary = "nodePortAddresses: is unset, which in this mode of kube-proxy means only the \
                   Node object's first address of each family; --nodeport-addresses=0.0.0.0/0,::/0 \
                   makes NodePorts answer on every address";
    let everywhere = "nodePortAddresses: is unset: NodePorts answer on every address of this node; \
                      --nodeport-addresses=primary restricts them to those of the Node object";
    match settings.node_ports {
        NodePortSelection::Primary if unset => vec![primary.to_owned()],
        NodePortSelection::All => vec![everywhere.to_owned()],
        NodePortSelection::Primary | NodePortSelection::Cidrs(_) => Vec::new(),
    }
}
