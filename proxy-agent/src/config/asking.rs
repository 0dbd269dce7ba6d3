//! What the commands that ask mean: `state`, `explain`, `check`.

use std::path::PathBuf;

use super::{
    ConfigError, absolute_pin_dir,
    cli::{AskArgs, CheckArgs, ModelArgs, NodeArgs, PinArgs},
};
use crate::{admin, backends};
use proxy_backend::{BackendKind, Settings};

/// The socket of the agent that is meant. It has a configuration of its own: flags that would
/// decide something with manifests are mistakes.
pub fn asked(args: &AskArgs, model: &ModelArgs) -> Result<PathBuf, ConfigError> {
    let idle = model.idle_without_manifests().into_iter();
    let mut mistakes: Vec<_> = idle
        .map(|flag| {
            format!(
                "--{flag}: has no effect here: the running agent answers, with its own \
                 configuration; give --manifests to compute the state from files, or leave this \
                 flag out"
            )
        })
        .collect();
    let socket = args.admin_socket.clone().unwrap_or_else(|| {
        let pins = PinArgs {
            pin_dir: args.pin_dir.clone(),
        };
        admin::socket_path(&absolute_pin_dir(&pins, &mut mistakes))
    });
    if mistakes.is_empty() {
        Ok(socket)
    } else {
        Err(ConfigError { mistakes })
    }
}

/// The node that the running agent must be for; `None` if any will do.
pub fn wanted_node(args: &NodeArgs) -> Option<String> {
    let name = args.node_name.as_deref()?;
    Some(super::normal_node_name(name))
}

/// What `check` looks at: what `run` would use.
pub fn check(args: &CheckArgs) -> Result<Settings, ConfigError> {
    let mut mistakes = Vec::new();
    let pin_dir = absolute_pin_dir(&args.pins, &mut mistakes);
    let given = args.backends.given.clone();
    let wrong = BackendKind::mistakes(backends::ALL, &given);
    mistakes.extend(wrong.iter().map(ToString::to_string));
    if !mistakes.is_empty() {
        return Err(ConfigError { mistakes });
    }
    Ok(Settings {
        pin_dir,
        given,
        ..Settings::default()
    })
}
