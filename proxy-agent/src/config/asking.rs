//! What the commands that ask mean: `state`, `explain`, `check`.

use std::path::PathBuf;

use super::{
    ConfigError, absolute_pin_dir,
    cli::{AskArgs, CheckArgs, NodeArgs, PinArgs},
};
use crate::{admin, backend::ebpf};

/// The socket of the agent that is meant.
pub fn admin_socket(args: &AskArgs) -> Result<PathBuf, ConfigError> {
    if let Some(socket) = &args.admin_socket {
        return Ok(socket.clone());
    }
    let pins = PinArgs {
        pin_dir: args.pin_dir.clone(),
    };
    super::pin_dir(&pins).map(|pin_dir| admin::socket_path(&pin_dir))
}

/// The node that the running agent must be for; `None` if any will do.
pub fn wanted_node(args: &NodeArgs) -> Option<String> {
    let name = args.node_name.as_deref()?;
    Some(super::normal_node_name(name))
}

/// What `check` looks at: what `run` would use.
pub fn check(args: &CheckArgs) -> Result<ebpf::Options, ConfigError> {
    let mut mistakes = Vec::new();
    let pin_dir = absolute_pin_dir(&args.pins, &mut mistakes);
    if !mistakes.is_empty() {
        return Err(ConfigError { mistakes });
    }
    Ok(ebpf::Options {
        pin_dir,
        cgroup_path: args.cgroup_path.clone(),
        map_sizes: std::collections::BTreeMap::new(),
        kernel_log: false,
    })
}
