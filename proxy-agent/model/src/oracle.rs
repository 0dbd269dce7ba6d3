//! The oracle: what must become of a packet on one node, as the contract of a service proxy has
//! it. Pure: node-local state and a packet in, a verdict out. Knows no backend; every backend,
//! and real traffic through it, must agree with it.
//!
//! Written for obviousness: it looks at every frontend each time, and shares nothing with what
//! computes the state.

mod traffic;
mod verdict;

pub use self::{
    traffic::{Detector, Packet, Path, Traffic},
    verdict::{Masquerade, Outcome, Reason, Target, Verdict},
};

use crate::{
    Endpoint, Frontend, FrontendKind, NodeState, Protocol, ServicePortKey, ServiceState,
    TrafficPolicy,
};

/// What must become of `packet`.
///
/// On [`Path::Packet`] that is what kube-proxy does by netfilter in its nftables mode; on
/// [`Path::Socket`] what the socket hooks of the eBPF backend do, which decide when a local
/// process dials: they know no source address, see neither SCTP nor raw sockets, and leave alone
/// what they do not serve.
pub fn verdict(state: &NodeState, traffic: &Traffic, packet: &Packet, path: Path) -> Verdict {
    let packet = &packet.canonical();
    if path == Path::Socket && packet.protocol == Protocol::Sctp {
        return Verdict::without_service(Outcome::Pass, Reason::UnseenProtocol);
    }
    match dialled(state, packet) {
        Some((key, service, frontend)) => {
            let masquerade = |endpoint: &Endpoint| match path {
                Path::Packet => masquerade(state, traffic, packet, frontend, endpoint),
                // The endpoint sees the true source: there is none yet that could be rewritten.
                Path::Socket => None,
            };
            serve(key, service, frontend, masquerade)
        }
        None => match path {
            Path::Packet => stray(state, packet),
            Path::Socket => Verdict::without_service(Outcome::Pass, Reason::NoFrontend),
        },
    }
}

/// The frontend that `packet` is for.
fn dialled<'a>(
    state: &'a NodeState,
    packet: &Packet,
) -> Option<(&'a ServicePortKey, &'a ServiceState, Frontend)> {
    let to = packet.destination;
    state.services.iter().find_map(|(key, service)| {
        let is_dialled = |frontend: &&Frontend| {
            key.protocol == packet.protocol
                && (frontend.address, frontend.port) == (to.ip(), to.port())
        };
        let frontend = service.frontends.iter().find(is_dialled)?;
        Some((key, &**service, *frontend))
    })
}

/// What becomes of a packet for a frontend.
fn serve(
    key: &ServicePortKey,
    service: &ServiceState,
    frontend: Frontend,
    masquerade: impl Fn(&Endpoint) -> Option<Masquerade>,
) -> Verdict {
    let policy = match frontend.kind {
        FrontendKind::ClusterIp => service.internal_policy,
    };
    let (set, reason) = match policy {
        TrafficPolicy::Cluster => (&service.cluster_endpoints, Reason::ClusterSet),
        TrafficPolicy::Local => (&service.local_endpoints, Reason::LocalSet),
    };
    let targets: Vec<_> = set
        .iter()
        .flat_map(|set| set.iter())
        .map(|endpoint| Target {
            address: endpoint.address,
            masquerade: masquerade(endpoint),
        })
        .collect();
    let (outcome, reason) = if !targets.is_empty() {
        (Outcome::Forward, reason)
    } else if service.has_any_endpoints {
        // A load balancer that tries another node must not take it for a refusal.
        (Outcome::Drop, Reason::NoneByPolicy)
    } else {
        (Outcome::Reject, Reason::NoEndpoints)
    };
    Verdict {
        outcome,
        service: Some(key.clone()),
        frontend: Some(frontend),
        targets,
        reason,
    }
}

/// What becomes of a packet that no frontend waits for.
fn stray(state: &NodeState, packet: &Packet) -> Verdict {
    let to = packet.destination.ip();
    let is_live = state
        .services
        .values()
        .flat_map(|service| &service.frontends)
        .any(|frontend| frontend.address == to && frontend.kind == FrontendKind::ClusterIp);
    let (outcome, reason) = if is_live {
        (Outcome::Reject, Reason::UnknownPort)
    } else if state.service_cidrs.iter().any(|cidr| cidr.contains(&to)) {
        // Otherwise the default route sends it out, and a router back: a loop.
        (Outcome::Drop, Reason::Unallocated)
    } else {
        (Outcome::Pass, Reason::NoFrontend)
    };
    Verdict::without_service(outcome, reason)
}

/// Why the source address is replaced by this node's on the way to `endpoint`.
fn masquerade(
    state: &NodeState,
    traffic: &Traffic,
    packet: &Packet,
    frontend: Frontend,
    endpoint: &Endpoint,
) -> Option<Masquerade> {
    match frontend.kind {
        FrontendKind::ClusterIp if traffic.masquerade_all => Some(Masquerade::All),
        FrontendKind::ClusterIp
            if traffic.detector.is_local(&state.node, packet) == Some(false) =>
        {
            Some(Masquerade::NotLocal)
        }
        // Without it the endpoint would answer itself, past this node.
        FrontendKind::ClusterIp => {
            (endpoint.address.ip() == packet.source).then_some(Masquerade::Hairpin)
        }
    }
}

#[cfg(test)]
mod tests;
