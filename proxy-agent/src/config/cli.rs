//! What can be typed. `docs/reference/cli.md` is generated from it.

mod agent;
pub(crate) mod backends;
mod config;
mod conntrack;
mod instead;
mod kube_proxy;
mod node_api;
pub mod others;
mod parse;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};

pub use self::{
    agent::{AgentArgs, BrainArgs, LogArgs, SinkArgs},
    backends::{CheckBackendArgs, RunBackendArgs},
    config::{
        ConfigArgs, ConfigCommand, ConvertArgs, DiffArgs, ExplainFieldArgs, Reader, ValidateArgs,
        VersionArgs,
    },
    conntrack::{ConntrackArgs, ConntrackCommand, FlushArgs, ListArgs, StatsArgs},
    instead::{IdleArgs, Instead, InsteadArgs},
    kube_proxy::{ApiServerArgs, ModelArgs, ServingArgs},
    node_api::{ListenArgs, TargetArgs},
    others::OtherArgs,
};

use crate::report::{Form, explain::Arrival};

/// The heading of the flags that most agents are started with.
const FIRST: &str = "Most used";
/// That of what decides how traffic is served, besides the configuration of kube-proxy.
const DATAPLANE: &str = "Dataplane";

/// Those of commands that answer.
const ANSWER: &str = "Answer";
const PACKET: &str = "Packet";

/// Where maps and links are pinned unless the user says otherwise.
pub const DEFAULT_PIN_DIR: &str = "/sys/fs/bpf/culvert";

/// Culvert's agent: makes Service addresses reach healthy endpoints on one Kubernetes node.
///
/// Without a subcommand it runs. Called as `kube-proxy`, by a link of that name for one, it does what
/// kube-proxy does with the same command line, and `--take-over` is on.
#[derive(Debug, Parser)]
#[command(
    name = "proxy-agent",
    args_conflicts_with_subcommands = true,
    // As with kube-proxy, the last one counts.
    args_override_self = true,
    disable_version_flag = true
)]
#[command(after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Print the version
    #[arg(short = 'V', long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    #[arg(value_parser = ["true", "false", "raw"])]
    pub version: Option<String>,
    /// What kube-proxy does instead of serving.
    #[command(flatten)]
    pub instead: InsteadArgs,
    /// Arguments of `run`, when no subcommand is given.
    #[command(flatten)]
    pub run: RunArgs,
}

/// The flags that stand for fields, without their dashes, and the fields. Those of backends are named by
/// their fields.
pub fn flags_of_fields() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    kube_proxy::FLAGS.iter().chain(others::FLAGS).copied()
}

/// Flags that count before a field without setting it, with its path.
pub const FLAGS_BEFORE_FIELDS: [(&str, &[&str]); 2] = [
    ("hostname-override", &["hostnameOverride"]),
    ("kubeconfig", &["clientConnection.kubeconfig"]),
];

/// Exit codes, as the help and the reference page tell them.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done, or stopped by SIGTERM or SIGINT (the dataplane stays in place)
  1  failed while running
  2  bad usage or bad input: a flag, a file, or a manifest at start
  3  cannot run on this host: no rights, no BPF, no cgroup v2, no BPF file system; mode auto: no backend can be used
  4  another agent holds the pin directory, programs the packet rules, or answers on the admin socket";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve Services until stopped; what is programmed stays in the kernel afterwards
    Run(Box<RunArgs>),
    /// Compute what this node must do, for backends in other processes; programs nothing itself
    Brain(Box<BrainArgs>),
    /// Print the node-local state: the running agent's, or the one computed from manifests
    State(StateArgs),
    /// Explain what happens to a packet, and why: asks the running agent, or computes it from
    /// manifests
    Explain(ExplainArgs),
    /// The connections from outside that programs on devices translate: list, count or end them
    Conntrack(ConntrackArgs),
    /// Show what this host supports, and which backend would be chosen
    Check(CheckArgs),
    /// Print what a backend would program; needs no privileges
    Render(RenderArgs),
    /// Check configuration files, convert them, compare them, and tell what their fields mean
    Config(ConfigArgs),
    /// Print the level of the running agent's log, or change it until the agent ends
    LogLevel(LogLevelArgs),
    /// Remove everything that agents left in the kernel; traffic to Services then fails
    Cleanup(CleanupArgs),
    /// Mount the BPF file system for the host, if there is none yet; needs `CAP_SYS_ADMIN`. For an init
    /// container, say, so that the agent need not have that right
    MountBpffs(MountBpffsArgs),
    /// Print the version
    Version,
}

/// Where cluster objects come from, and for which node.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Source: manifests, API server")]
pub struct NodeArgs {
    /// Name of this node [default: the host's name]
    #[arg(help_heading = FIRST)]
    #[arg(long, visible_alias = "hostname-override", value_name = "NAME")]
    pub node_name: Option<String>,

    /// File or directory (*.yaml, *.yml, *.json) of Services, EndpointSlices, Nodes and `ServiceCIDRs` as kubectl
    /// prints them; may be repeated; watched for changes while running
    #[arg(long, value_name = "PATH")]
    pub manifests: Vec<PathBuf>,
}

/// Where the eBPF backend keeps its pins.
#[derive(Debug, Args)]
#[command(next_help_heading = DATAPLANE)]
pub struct PinArgs {
    /// Directory on the BPF file system for maps and links; for one agent at a time. The environment
    /// may name it, too: `CULVERT_PIN_DIR`
    #[arg(long, value_name = "DIR", default_value = DEFAULT_PIN_DIR)]
    #[arg(env = "CULVERT_PIN_DIR", hide_env = true)]
    pub pin_dir: PathBuf,
}

/// Arguments of `cleanup`.
#[derive(Debug, Args)]
pub struct CleanupArgs {
    /// Pins.
    #[command(flatten)]
    pub pins: PinArgs,

    /// First let connections from outside end that programs on devices translate, for at most this
    /// long, such as 5m; the rest is removed at once. Without it, these connections break
    #[arg(help_heading = DATAPLANE, long, value_name = "DURATION", value_parser = duration)]
    pub wait: Option<Duration>,

    /// Afterwards, stay until SIGTERM or SIGINT: for a DaemonSet that cleans each node, whose pods
    /// are there to be counted
    #[arg(help_heading = DATAPLANE, long)]
    pub hold: bool,
}

/// How long something may take.
fn duration(text: &str) -> Result<Duration, &'static str> {
    let duration = text.parse::<jiff::SignedDuration>().ok();
    let duration = duration.and_then(|duration| Duration::try_from(duration).ok());
    duration
        .filter(|duration| !duration.is_zero())
        .ok_or("write it like 30s, 5m or 1h30m")
}

/// Arguments of `mount-bpffs`.
#[derive(Debug, Args)]
pub struct MountBpffsArgs {
    /// Directory to mount it at
    #[arg(help_heading = DATAPLANE, long, value_name = "DIR", default_value = "/sys/fs/bpf")]
    pub at: PathBuf,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// What every agent takes.
    #[command(flatten)]
    pub agent: AgentArgs,

    /// Pins.
    #[command(flatten)]
    pub pins: PinArgs,

    /// Socket on which `state` and `explain` query this agent [default: /run/culvert/<pin
    /// directory, with - for />.sock]
    #[arg(help_heading = DATAPLANE)]
    #[arg(long, value_name = "PATH")]
    pub admin_socket: Option<PathBuf>,

    /// Backends in the order of preference.
    #[arg(help_heading = DATAPLANE)]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help = backends::order_help())]
    pub backend_order: Vec<String>,

    /// Remove what kube-proxy left in the kernel, in any of its modes, once this agent's own rules
    /// are in force; stop kube-proxy first
    #[arg(help_heading = FIRST)]
    #[arg(long)]
    pub take_over: bool,

    /// What backends take.
    #[command(flatten)]
    pub backends: RunBackendArgs,

    /// What kube-proxy takes and nobody needs.
    #[command(flatten)]
    pub idle: IdleArgs,
}

/// Which running agent to ask.
#[derive(Debug, Args)]
#[command(next_help_heading = "Running agent")]
pub struct AskArgs {
    /// Query the agent that holds this pin directory
    #[arg(long, value_name = "DIR", default_value = DEFAULT_PIN_DIR)]
    pub pin_dir: PathBuf,

    /// The agent's socket [default: /run/culvert/<pin directory, with - for />.sock]
    #[arg(long, value_name = "PATH")]
    pub admin_socket: Option<PathBuf>,
}

/// Arguments of `state`.
#[derive(Debug, Args)]
pub struct StateArgs {
    /// What decides what becomes of traffic.
    #[command(flatten)]
    pub model: ModelArgs,

    /// The agent to ask.
    #[command(flatten)]
    pub ask: AskArgs,

    /// Instead of the state, print how the kernel differs from it
    #[arg(help_heading = ANSWER, long, conflicts_with = "manifests")]
    pub kernel: bool,

    /// Format of the output; the JSON is described in docs/state-json.md
    #[arg(help_heading = ANSWER, short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub output: Form,
}

/// Arguments of `log-level`.
#[derive(Debug, Args)]
pub struct LogLevelArgs {
    /// What `--log-level` takes, or kube-proxy's verbosity: 0 to 3 for info, 4 and 5 for debug, more
    /// for trace
    #[arg(value_name = "LEVEL")]
    pub level: Option<String>,

    /// The agent to ask.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// What decides what becomes of traffic.
    #[command(flatten)]
    pub model: ModelArgs,

    /// The agent to ask.
    #[command(flatten)]
    pub ask: AskArgs,

    /// Interface on which the packet arrives; leave it out for a packet that this node sends
    #[arg(help_heading = PACKET, long, value_name = "NAME")]
    pub in_interface: Option<String>,

    /// Where the proxy sees it: as a packet, or as a call of a local socket
    #[arg(help_heading = PACKET, long, value_enum, value_name = "WHERE", default_value = "packet")]
    pub path: Arrival,

    /// Source address
    #[arg(help_heading = PACKET, long, value_name = "IP")]
    pub from: String,

    /// Destination, such as `10.96.0.10:53/udp` or `[fd00::a]:53/udp`
    #[arg(help_heading = PACKET, long, value_name = "IP:PORT/PROTO")]
    pub to: String,

    /// Format of the output; the JSON is described in docs/explain-json.md
    #[arg(help_heading = ANSWER, short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub output: Form,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Pins.
    #[command(flatten)]
    pub pins: PinArgs,

    /// What backends take.
    #[command(flatten)]
    pub backends: CheckBackendArgs,

    /// Format of the output; the JSON is described in docs/check-json.md
    #[arg(help_heading = ANSWER, short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub output: Form,
}

/// Arguments of `render`.
#[derive(Debug, Args)]
pub struct RenderArgs {
    /// What decides what becomes of traffic.
    #[command(flatten)]
    pub model: ModelArgs,

    /// The backend, as if it were alone [default: the layers of the mode, one after the other]
    #[arg(help_heading = DATAPLANE, long, value_name = "NAME", value_parser = backends::names())]
    pub backend: Option<String>,
}
