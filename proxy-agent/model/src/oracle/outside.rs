//! Whether programs on devices take a packet from outside where they lie over a packet backend: what
//! they pass on, that one decides. What becomes of the packet is the same either way.

use super::{Detector, Outcome, Packet, Path, dialled, is_within, verdict};
use crate::{FrontendKind, NodeState, Protocol, TrafficPolicy};

/// Why programs on devices pass a packet on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassedOn {
    /// They know TCP and UDP.
    Protocol,
    /// It is for no Service.
    NoFrontend,
    /// Its source is in none of the ranges.
    SourceRanges,
    /// It may have to be masqueraded.
    Masquerade,
    /// Its endpoint may be on another node.
    RemoteEndpoint,
    /// It comes from this node or a pod of it.
    LocalSource,
    /// It is rejected or dropped.
    NoEndpoint,
}

impl PassedOn {
    /// Why, for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Protocol => "it is neither TCP nor UDP",
            Self::NoFrontend => "it is for no Service",
            Self::SourceRanges => "its source is in none of the loadBalancerSourceRanges",
            Self::Masquerade => "it may have to be masqueraded",
            Self::RemoteEndpoint => "its endpoint may be on another node",
            Self::LocalSource => "it comes from this node or from a pod of it",
            Self::NoEndpoint => "no endpoint is allowed",
        }
    }
}

/// Whether programs on the device that `packet` comes in by take it, in order of what they look at.
pub fn taken_on_device(state: &NodeState, packet: &Packet) -> Result<(), PassedOn> {
    let packet = &packet.canonical();
    if !matches!(packet.protocol, Protocol::Tcp | Protocol::Udp) {
        return Err(PassedOn::Protocol);
    }
    let Some((_, service, frontend)) = dialled(state, packet, Path::Packet) else {
        return Err(PassedOn::NoFrontend);
    };
    let is_external = frontend.kind.is_external();
    let policy = if is_external {
        service.external_policy
    } else {
        service.internal_policy
    };
    let detects = state.traffic.masquerade_all || state.traffic.detector != Detector::None;
    if is_external && policy == TrafficPolicy::Cluster || !is_external && detects {
        return Err(PassedOn::Masquerade);
    }
    if policy != TrafficPolicy::Local {
        return Err(PassedOn::RemoteEndpoint);
    }
    let ranges = service.source_ranges.as_ref();
    let mut ranges = ranges
        .filter(|_| frontend.kind == FrontendKind::LoadBalancerIp)
        .into_iter();
    if ranges.any(|ranges| !is_within(ranges, packet)) {
        return Err(PassedOn::SourceRanges);
    }
    let from_pod = state.traffic.detector.is_local(&state.node, packet) == Some(true);
    // Nobody else may say so: what the ranges make of it is decided beneath.
    let is_own = packet.source == packet.destination.ip();
    if is_own || from_pod || state.node.is_host(packet.source) {
        return Err(PassedOn::LocalSource);
    }
    if verdict(state, packet, Path::Packet).outcome != Outcome::Forward {
        return Err(PassedOn::NoEndpoint);
    }
    Ok(())
}
