//! Where the packet that is asked about meets the proxy.

use clap::ValueEnum;
use proxy_model::oracle::Path;
use serde::{Deserialize, Serialize};

/// Where a packet meets the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrival {
    /// On a network device, as a proxy that filters packets sees it.
    #[default]
    Packet,
    /// In a socket call of a process on this node.
    Socket,
}

impl From<Arrival> for Path {
    fn from(arrival: Arrival) -> Self {
        match arrival {
            Arrival::Packet => Self::Packet,
            Arrival::Socket => Self::Socket,
        }
    }
}
