//! The running agent's own questions and answers: what `state` and `explain` without `--manifests`
//! ask. HTTP on a Unix socket that only the agent's user can open, so `curl` serves as well.
//!
//! ```text
//! client ──HTTP──> server ──Query──> run loop (owner of the state) ──snapshot──> server ──text──> client
//! ```
//!
//! Answers are rendered outside the run loop: a reader never holds up a change.

pub mod client;
pub mod server;

use std::path::{Path, PathBuf};

use proxy_model::{
    NodeState,
    oracle::{Packet, Path as Arrival},
};
use tokio::sync::oneshot;

use crate::report::{AgentFacts, Compared, explain::Explanation};

/// Where sockets are, unless the user says otherwise. Emptied by a reboot, as the kernel state is.
const DIRECTORY: &str = "/run/culvert";

/// The longest path that a Unix socket can have, without the terminating zero (unix(7)).
const LONGEST_PATH: usize = 107;

/// The socket of the agent that holds `pin_dir`: an agent and its socket find each other by what
/// there can be only one of.
pub fn socket_path(pin_dir: &Path) -> PathBuf {
    let name = pin_dir.to_string_lossy();
    let name = name.trim_matches('/').replace('/', "-");
    let longest = LONGEST_PATH - DIRECTORY.len() - "/.sock".len();
    // The end tells directories apart that were made for one purpose.
    let start = name.len().saturating_sub(longest);
    let start = (start..name.len()).find(|&at| name.is_char_boundary(at));
    let name = &name[start.unwrap_or(0)..];
    Path::new(DIRECTORY).join(format!("{name}.sock"))
}

/// A question to the run loop, with where its answer goes.
#[derive(Debug)]
pub enum Query {
    /// What this node must do.
    State(oneshot::Sender<Snapshot>),
    /// How the kernel differs from it, layer by layer.
    Differences(oneshot::Sender<Vec<Compared>>),
    /// What happens to a packet.
    Explain {
        /// The packet.
        packet: Packet,
        /// Where it meets the proxy.
        arrival: Arrival,
        /// Where the answer goes.
        answer: oneshot::Sender<Explanation>,
    },
}

/// The state, and facts about the agent that holds it. Cheap to make: the state is shared.
#[derive(Debug)]
pub struct Snapshot {
    /// Node-local state.
    pub state: NodeState,
    /// The agent.
    pub agent: AgentFacts,
}

#[cfg(test)]
mod tests;
