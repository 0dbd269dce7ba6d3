//! What the oracle answers.

use std::{fmt, net::SocketAddr};

use crate::{Frontend, ServicePortKey, TrafficPolicy};

/// What must become of a packet, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What becomes of it.
    pub outcome: Outcome,
    /// The Service port whose frontend it is for.
    pub service: Option<ServicePortKey>,
    /// That frontend.
    pub frontend: Option<Frontend>,
    /// Which of the Service port's sets was asked for endpoints.
    pub set: Option<TrafficPolicy>,
    /// Where it may land, one of these, ordered by address; empty unless it is forwarded.
    pub targets: Vec<Target>,
    /// The rule that decided.
    pub reason: Reason,
}

impl Verdict {
    pub(super) const fn without_service(outcome: Outcome, reason: Reason) -> Self {
        Self {
            outcome,
            service: None,
            frontend: None,
            set: None,
            targets: Vec::new(),
            reason,
        }
    }
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It goes to one of the targets.
    Forward,
    /// The sender gets an error at once: ICMP port unreachable, or `ECONNREFUSED` from a socket
    /// hook.
    Reject,
    /// It is dropped; a socket hook cannot do that, and returns `EHOSTUNREACH`.
    Drop,
    /// It does not concern a service proxy, and is left alone.
    Pass,
}

impl Outcome {
    /// The name used in output: `forward`, `reject`, `drop` or `pass`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Reject => "reject",
            Self::Drop => "drop",
            Self::Pass => "pass",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An endpoint that a packet may land on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Address and port.
    pub address: SocketAddr,
    /// Why it sees this node as the source; `None` if it sees the true source.
    pub masquerade: Option<Masquerade>,
}

/// Why a source address is replaced by the node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masquerade {
    /// The configuration says so of everything (`masqueradeAll`).
    All,
    /// It does not come from this node's pods, so the reply might not come back through this node.
    NotLocal,
    /// It dials an address for clients outside the cluster (policy Cluster).
    External,
    /// It comes from this node itself, and dials an address for clients outside the cluster
    /// (policy Local).
    Host,
    /// The endpoint dials itself through the Service.
    Hairpin,
}

/// The rule behind a [`Verdict`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Policy Cluster: any endpoint of the cluster.
    ClusterSet,
    /// Policy Local: endpoints on this node.
    LocalSet,
    /// Policy Local on an address for clients outside the cluster, but the client is on this node:
    /// any endpoint of the cluster.
    LocalClient,
    /// The source is in none of the ranges that may dial this load-balancer IP.
    SourceRange,
    /// The load-balancer IP has source ranges, and a socket hook does not know the source.
    PacketPathDecides,
    /// With `masqueradeAll` only packets can be masqueraded, so socket hooks leave ClusterIPs to the
    /// packet backend beneath.
    MasqueradedBeneath,
    /// The Service has no endpoint anywhere.
    NoEndpoints,
    /// There are endpoints, but policy allows none of them from here.
    NoneByPolicy,
    /// The address is a ClusterIP, without a Service port of that number and protocol.
    UnknownPort,
    /// The address is in a range of ClusterIPs, but belongs to no Service.
    Unallocated,
    /// The address belongs to no Service.
    NoFrontend,
    /// Socket hooks are not called for this protocol.
    UnseenProtocol,
}
