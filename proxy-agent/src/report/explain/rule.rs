//! Why a verdict is as it is, in words: the rule, who was let in, and what the endpoint sees as
//! the source.

use proxy_model::{
    FrontendKind, NodeState, SourceRanges,
    oracle::{Detector, Masquerade, Packet, Path, Reason, Verdict},
};

use crate::report::table;

/// The rule that decided.
pub(super) fn of(state: &NodeState, packet: &Packet, path: Path, verdict: &Verdict) -> String {
    let to = packet.destination.ip();
    let policy = match verdict.frontend {
        Some(frontend) if frontend.kind.is_external() => "externalTrafficPolicy",
        _ => "internalTrafficPolicy",
    };
    let rule = match verdict.reason {
        Reason::ClusterSet => {
            format!("{policy} Cluster: all usable endpoints of the cluster")
        }
        Reason::LocalSet => format!("{policy} Local: the usable endpoints on this node"),
        Reason::LocalClient => {
            let is_pod = state.traffic.detector.is_local(&state.node, packet) == Some(true);
            let client = match path {
                Path::Socket => "a process of this node",
                Path::Packet if is_pod => "a pod of this node",
                Path::Packet => "this node itself",
            };
            format!(
                "{policy} Local, but the client is {client}: all usable endpoints of the cluster"
            )
        }
        Reason::SourceRange => format!(
            "{} is in none of the loadBalancerSourceRanges {}",
            packet.source,
            ranges(state, verdict).map_or_else(String::new, |one| table::list(&one.ranges))
        ),
        Reason::PacketPathDecides => {
            "loadBalancerSourceRanges: the source is not known in a socket, so the packet path \
             decides"
                .to_owned()
        }
        Reason::MasqueradedBeneath => {
            "masqueradeAll: only packets can be masqueraded, so the packet path decides about \
             ClusterIPs"
                .to_owned()
        }
        Reason::NoEndpoints => "the Service has no usable endpoint anywhere".to_owned(),
        Reason::NoneByPolicy => {
            format!("{policy} Local, and every usable endpoint is on another node")
        }
        Reason::UnknownPort => {
            format!("{to} is a ClusterIP, but no Service has this port")
        }
        Reason::Unallocated => {
            let mut cidrs = state.service_cidrs.iter();
            let cidr = cidrs.find(|cidr| cidr.contains(&to));
            let cidr = cidr.map(ToString::to_string).unwrap_or_default();
            format!("{to} is in {cidr}, the range of ClusterIPs, but no Service has it")
        }
        Reason::NoFrontend => {
            "no Service that this node serves has this address and port".to_owned()
        }
        Reason::UnseenProtocol => {
            format!("sockets that use {} are not intercepted", packet.protocol)
        }
    };
    rule + "."
}

/// Whom an endpoint sees.
pub(super) fn source(state: &NodeState, packet: &Packet, path: Path, verdict: &Verdict) -> String {
    let from = packet.source;
    if path == Path::Socket {
        return "is kept: an address that is translated in a socket needs no masquerading."
            .to_owned();
    }
    let mut reasons = verdict.targets.iter().filter_map(|one| one.masquerade);
    let reason = reasons.next();
    let is_kept = verdict.targets.iter().any(|one| one.masquerade.is_none());
    if is_kept && reason.is_some_and(|reason| reason != Masquerade::Hairpin) {
        return "is kept for endpoints on this node, and becomes this node for others.".to_owned();
    }
    match reason {
        Some(Masquerade::All) => "becomes this node: masqueradeAll is set.".to_owned(),
        Some(Masquerade::NotLocal) => {
            format!(
                "becomes this node: {from} {}.",
                foreign(state, &state.traffic.detector)
            )
        }
        Some(Masquerade::External) => {
            "becomes this node: externalTrafficPolicy Cluster, and the reply must come back \
             through this node."
                .to_owned()
        }
        Some(Masquerade::Host) => {
            format!(
                "becomes this node, on the address that it sends from: {from} is its own, and the \
                 reply must come back through this node."
            )
        }
        Some(Masquerade::Hairpin) => {
            format!(
                "is kept, except that {from} sees this node as the source when it reaches itself \
                 (hairpin)."
            )
        }
        None => match state.traffic.detector.is_local(&state.node, packet) {
            Some(true) => format!("is kept: {from} is local."),
            Some(false) => "is kept: the reply comes back through this node.".to_owned(),
            None => "is kept: it is not known which sources are local.".to_owned(),
        },
    }
}

/// Why somebody may dial a load-balancer IP that not everyone may.
pub(super) fn admission(state: &NodeState, packet: &Packet, verdict: &Verdict) -> Option<String> {
    let from = packet.source;
    let allowed = ranges(state, verdict)?;
    let range = allowed.ranges.iter().find(|range| range.contains(&from));
    Some(match range {
        Some(range) => format!("Source ranges: {from} is in {range}."),
        None => format!(
            "Source ranges: {from} is the load-balancer IP itself, and this node is in one of {}.",
            table::list(&allowed.ranges)
        ),
    })
}

/// Who may dial the frontend; `None` if everyone may.
fn ranges<'a>(state: &'a NodeState, verdict: &Verdict) -> Option<&'a SourceRanges> {
    let is_balanced = verdict.frontend?.kind == FrontendKind::LoadBalancerIp;
    let service = state.services.get(verdict.service.as_ref()?)?;
    service.source_ranges.as_deref().filter(|_| is_balanced)
}

/// Why a source does not count as a pod of this node.
fn foreign(state: &NodeState, detector: &Detector) -> String {
    match detector {
        Detector::None => "is not local".to_owned(),
        Detector::ClusterCidr(cidrs) => {
            format!("is outside the cluster's pod ranges {}", table::list(cidrs))
        }
        Detector::NodeCidr => format!(
            "is outside this node's pod ranges {}",
            table::list(state.node.pod_cidrs())
        ),
        Detector::BridgeInterface(name) => format!("does not arrive on {name}"),
        Detector::InterfaceNamePrefix(prefix) => {
            format!("does not arrive on an interface named {prefix}…")
        }
    }
}
