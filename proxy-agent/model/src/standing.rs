//! What each endpoint is to a set: used, or left out, and why (KEP-1669, KEP-2086,
//! KEP-2433). The rules themselves; `select.rs` collects those that are used.

use std::net::SocketAddr;

use crate::slices::Candidate;

/// An endpoint of a Service port as one traffic policy sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing<'a> {
    /// Address and target port.
    pub address: SocketAddr,
    /// The node it runs on, as its EndpointSlice says.
    pub node: Option<&'a str>,
    /// What becomes of it.
    pub role: Role,
}

/// What becomes of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Used: it is ready.
    Ready,
    /// Used: it terminates, but it still answers, and none is ready.
    LastResort,
    /// Left out: it terminates, and others are ready.
    Terminating,
    /// Left out: it terminates and no longer answers.
    Stopped,
    /// Left out: it is not ready.
    NotReady,
    /// Left out: it is not on this node, and the policy is Local.
    Elsewhere,
    /// Left out: it is ready, but by its hints it is for other zones or nodes, and some are for
    /// this one.
    Farther,
}

impl Role {
    /// Whether connections go there.
    pub const fn is_used(self) -> bool {
        matches!(self, Self::Ready | Self::LastResort)
    }

    /// The role of an endpoint that the policy allows, in a set with or without ready ones. One
    /// ready endpoint hides all terminating ones.
    pub(crate) fn of(candidate: &Candidate<'_>, set_has_ready: bool) -> Self {
        let conditions = candidate.conditions;
        // Ready counts even for a terminating endpoint: that is how `publishNotReadyAddresses`
        // arrives.
        if conditions.ready {
            Self::Ready
        } else if !conditions.terminating {
            Self::NotReady
        } else if !conditions.serving {
            Self::Stopped
        } else if set_has_ready {
            Self::Terminating
        } else {
            Self::LastResort
        }
    }
}
