//! The ordered difference between two node-local states.

use std::sync::Arc;

use crate::{ServicePortKey, ServiceState};

/// What changed since the last state that a backend was given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangeSet {
    /// The changes are the whole state: anything that a backend holds and they do not name is
    /// stale. True on the first sync and after any error.
    pub whole: bool,
    /// Facts of the node changed that decide where packets go: [`NodeState::node_port_addresses`],
    /// [`NodeState::service_cidrs`], or the addresses of the host or of its pods.
    ///
    /// [`NodeState::node_port_addresses`]: crate::NodeState::node_port_addresses
    /// [`NodeState::service_cidrs`]: crate::NodeState::service_cidrs
    pub node: bool,
    /// Upserts first, then deletes, each in key order. A backend gives up no address before all
    /// upserts are done, so that one that moves between Services is never absent.
    pub changes: Vec<Change>,
}

impl ChangeSet {
    /// Whether a backend has nothing to do.
    pub fn is_empty(&self) -> bool {
        !self.whole && !self.node && self.changes.is_empty()
    }
}

/// One change of a [`ChangeSet`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A Service port was added or changed.
    Upsert {
        /// Which.
        key: ServicePortKey,
        /// What it is now.
        state: Arc<ServiceState>,
    },
    /// A Service port is gone.
    Delete {
        /// Which.
        key: ServicePortKey,
    },
}

impl Change {
    /// The Service port that changed.
    pub fn key(&self) -> &ServicePortKey {
        match self {
            Self::Upsert { key, .. } | Self::Delete { key } => key,
        }
    }
}
