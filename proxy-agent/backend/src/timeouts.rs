//! For how long connections are remembered, for backends that do so themselves.

use std::time::Duration;

/// For how long a connection may be idle until it is forgotten. `None`: for as long as connection
/// tracking of this host remembers one that it has. They are about the node, so a backend that follows
/// a brain elsewhere goes by what its own agent was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// A connection of TCP.
    pub tcp_established: Option<Duration>,
    /// One of TCP that one side has closed.
    pub tcp_close_wait: Option<Duration>,
    /// Datagrams that are not answered.
    pub udp: Option<Duration>,
    /// Datagrams both ways.
    pub udp_stream: Option<Duration>,
}

/// kube-proxy's.
impl Default for Timeouts {
    fn default() -> Self {
        Self {
            tcp_established: Some(Duration::from_hours(24)),
            tcp_close_wait: Some(Duration::from_hours(1)),
            udp: None,
            udp_stream: None,
        }
    }
}
