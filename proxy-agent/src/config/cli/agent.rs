//! What the commands take that run as agents: `run`, `brain`.

use std::{collections::BTreeMap, path::PathBuf};

use clap::Args;

use super::{ApiServerArgs, DATAPLANE, ListenArgs, ModelArgs, OtherArgs, ServingArgs, TargetArgs};
use crate::log_format::LogFormat;

/// What an agent takes whatever it makes of the state.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// What decides what becomes of traffic.
    #[command(flatten)]
    pub model: ModelArgs,

    /// The API server.
    #[command(flatten)]
    pub api_server: ApiServerArgs,

    /// Another brain.
    #[command(flatten)]
    pub target: TargetArgs,

    /// HTTP.
    #[command(flatten)]
    pub serving: ServingArgs,

    /// What else kube-proxy takes.
    #[command(flatten)]
    pub others: OtherArgs,

    /// How often the kernel is compared with the desired state, such as 1m30s; /healthz answers 503
    /// while a change has waited for twice as long to come into force [default: 30s]
    #[arg(help_heading = DATAPLANE)]
    #[arg(long, visible_alias = "iptables-sync-period", value_name = "DURATION")]
    pub sync_period: Option<String>,

    /// Where the state goes besides.
    #[command(flatten)]
    pub sinks: SinkArgs,

    /// The log.
    #[command(flatten)]
    pub log: LogArgs,

    /// All flags of the command line, those that were not given with their defaults: for people who
    /// ask the running agent. Known to whoever read it as a whole.
    #[arg(skip)]
    pub flags: BTreeMap<String, String>,
}

/// Arguments of `brain`.
#[derive(Debug, Args)]
pub struct BrainArgs {
    /// What every agent takes.
    #[command(flatten)]
    pub agent: AgentArgs,

    /// The node is another host than this one: its addresses are those of its Node object, not
    /// those of this host's interfaces
    #[arg(help_heading = DATAPLANE, long, conflicts_with = "target")]
    pub elsewhere: bool,

    /// Socket on which `state` and `explain` query this brain
    #[arg(help_heading = DATAPLANE, long, value_name = "PATH", default_value = BRAIN_SOCKET)]
    pub admin_socket: PathBuf,
}

/// Where a brain is asked unless the user says otherwise: it holds no pin directory that could
/// name the socket.
pub const BRAIN_SOCKET: &str = "/run/culvert/brain.sock";

/// Where the state goes besides the backend.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "State for others")]
pub struct SinkArgs {
    /// Write the state to this file each time it changes, as JSON, replacing the whole file; `-`
    /// for standard output; the JSON is described in docs/state-json.md
    #[arg(short, long, value_name = "FILE")]
    pub output_file: Option<PathBuf>,

    /// The node API.
    #[command(flatten)]
    pub api: ListenArgs,
}

/// The log.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Log")]
pub struct LogArgs {
    /// Format of the log on standard error: text on a terminal, otherwise JSON lines
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "auto")]
    pub log_format: LogFormat,

    /// Least severe level that is logged; also takes tracing filter directives [default: info, or
    /// what kube-proxy's --v says: 4 and 5 for debug, more for trace]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
}
