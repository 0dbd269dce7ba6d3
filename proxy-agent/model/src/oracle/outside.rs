//! Whether programs on devices take a packet from outside where they lie over a packet backend: what
//! they pass on, that one decides. What becomes of the packet is the same either way, but for its source
//! where they are told to keep it.

use super::{Masquerade, Outcome, Packet, Path, Verdict, dialled, is_within, verdict};
use crate::{FrontendKind, NodeState, Protocol, TrafficPolicy};

/// A packet that programs on devices take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// What becomes of it, with all endpoints that may be chosen, and what those see that the programs
    /// lead to; of others the layer beneath decides.
    pub verdict: Verdict,
    /// Whether they lead to each of these. Otherwise they pass the packet on if they choose another
    /// one, for good: a flow stays where it is.
    pub leads_to: Vec<bool>,
}

impl Taken {
    /// Whether it is taken whichever endpoint is chosen.
    pub fn whatever_is_chosen(&self) -> bool {
        self.leads_to.iter().all(|leads| *leads)
    }
}

/// Why programs on devices pass a packet on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassedOn {
    /// They know TCP and UDP.
    Protocol,
    /// It is for no Service.
    NoFrontend,
    /// Its source is in none of the ranges.
    SourceRanges,
    /// It comes from this node or a pod of it.
    LocalSource,
    /// It is rejected or dropped.
    NoEndpoint,
    /// Every endpoint is a frontend itself.
    Frontend,
}

impl PassedOn {
    /// Why, for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Protocol => "it is neither TCP nor UDP",
            Self::NoFrontend => "it is for no Service",
            Self::SourceRanges => "its source is in none of the loadBalancerSourceRanges",
            Self::LocalSource => "it comes from this node or from a pod of it",
            Self::NoEndpoint => "no endpoint is allowed",
            Self::Frontend => "its endpoint is a frontend itself",
        }
    }
}

/// Whether programs on the device that `packet` comes in by take it, in order of what they look at.
/// `keeps_clients`: endpoints on this node see the true source, also where it would be masqueraded. They lead
/// to those that must see this node by a route that there is.
pub fn taken_on_device(
    state: &NodeState,
    packet: &Packet,
    keeps_clients: bool,
) -> Result<Taken, PassedOn> {
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
    let is_cluster = policy == TrafficPolicy::Cluster;
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
    let mut verdict = verdict(state, packet, Path::Packet);
    if verdict.outcome != Outcome::Forward {
        return Err(PassedOn::NoEndpoint);
    }
    let is_here = |address| {
        let mut all = service.cluster_endpoints.iter().flat_map(|set| &**set);
        all.any(|endpoint| endpoint.address == address && endpoint.is_here())
    };
    // The layer beneath would lead on from there.
    let is_frontend = |destination| {
        let packet = Packet {
            destination,
            ..packet.clone()
        };
        dialled(state, &packet, Path::Packet).is_some()
    };
    if verdict
        .targets
        .iter()
        .all(|target| is_frontend(target.address))
    {
        return Err(PassedOn::Frontend);
    }
    let mut leads_to = Vec::new();
    for target in &mut verdict.targets {
        let is_masqueraded = if keeps_clients {
            is_cluster && !is_here(target.address)
        } else {
            // What stays in the network of this host passes no POSTROUTING.
            !state.node.is_host(target.address.ip())
        };
        let sees_node =
            is_masqueraded && !matches!(target.masquerade, None | Some(Masquerade::Hairpin));
        let leads =
            !is_frontend(target.address) && (sees_node || target.address.ip() != packet.source);
        if leads && !sees_node {
            target.masquerade = None;
        }
        leads_to.push(leads);
    }
    if !leads_to.contains(&true) {
        return Err(PassedOn::LocalSource);
    }
    Ok(Taken { verdict, leads_to })
}
