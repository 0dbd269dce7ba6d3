//! The oracle: what must become of a packet on one node, by the contract of a service proxy. Pure:
//! node-local state and a packet in, a verdict out. Knows no backend; every backend, and real
//! traffic through it, must agree with it.
//!
//! Written for obviousness: it looks at every frontend each time, and shares nothing with what
//! computes the state.

mod layered;
mod outside;
mod route;
mod traffic;
mod verdict;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use self::{
    layered::{Beneath, Layered, layered},
    outside::{PassedOn, Taken, taken_on_device},
    traffic::{Detector, Packet, Path, Traffic},
    verdict::{Masquerade, Outcome, Reason, Target, Verdict},
};

use crate::{
    Frontend, FrontendKind, IpFamily, NodeState, Protocol, ServicePortKey, ServiceState,
    SourceRanges, TrafficPolicy,
};

/// What must become of `packet`.
///
/// On [`Path::Packet`] that is what kube-proxy does by netfilter in its nftables mode; on
/// [`Path::Socket`] what the socket hooks of the eBPF backend do, which decide when a local
/// process dials: they know no source address, see neither SCTP nor raw sockets, and leave alone
/// what they do not serve.
pub fn verdict(state: &NodeState, packet: &Packet, path: Path) -> Verdict {
    let packet = &packet.canonical();
    if path == Path::Socket && packet.protocol == Protocol::Sctp {
        return Verdict::without_service(Outcome::Pass, Reason::UnseenProtocol);
    }
    match dialled(state, packet, path) {
        Some((key, service, frontend)) => serve(state, packet, path, key, service, frontend),
        None => match path {
            Path::Packet => stray(state, packet),
            Path::Socket => Verdict::without_service(Outcome::Pass, Reason::NoFrontend),
        },
    }
}

/// What must become of `packet` on [`Path::Packet`] where NodePorts answer on 127.0.0.0/8 as well, as in
/// kube-proxy's iptables mode: what this node itself sends there can be led elsewhere, if the sysctl
/// `route_localnet` allows it. There is none for `::1`.
pub fn verdict_with_localnet(state: &NodeState, packet: &Packet) -> Verdict {
    let packet = &packet.canonical();
    let to = packet.destination;
    // The kernel takes the unspecified address for loopback.
    let is_local = matches!(to.ip(), IpAddr::V4(v4) if v4.is_loopback() || v4.is_unspecified());
    let answers = state
        .node_port_addresses
        .contains(&Ipv4Addr::LOCALHOST.into());
    let node_port = (is_local && answers && state.node.is_host(packet.source))
        .then(|| waits(state, packet, None))
        .flatten();
    match node_port {
        Some((key, service, frontend)) => {
            serve(state, packet, Path::Packet, key, service, frontend)
        }
        None => verdict(state, packet, Path::Packet),
    }
}

/// The frontend that `packet` is for: that of its very address before a NodePort.
fn dialled<'a>(
    state: &'a NodeState,
    packet: &Packet,
    path: Path,
) -> Option<(&'a ServicePortKey, &'a ServiceState, Frontend)> {
    waits(state, packet, Some(packet.destination.ip())).or_else(|| {
        let on_node = has_node_ports(state, packet, path);
        on_node.then(|| waits(state, packet, None)).flatten()
    })
}

/// The frontend at `address`, or the NodePort, of the port and protocol of `packet`.
fn waits<'a>(
    state: &'a NodeState,
    packet: &Packet,
    address: Option<IpAddr>,
) -> Option<(&'a ServicePortKey, &'a ServiceState, Frontend)> {
    let to = packet.destination;
    state.services.iter().find_map(|(key, service)| {
        let is_dialled = |frontend: &&Frontend| {
            (key.protocol, key.family) == (packet.protocol, IpFamily::of(to.ip()))
                && (frontend.address, frontend.port) == (address, to.port())
        };
        let frontend = service.frontends.iter().find(is_dialled)?;
        Some((key, &**service, *frontend))
    })
}

/// Whether NodePorts answer where `packet` is sent to.
fn has_node_ports(state: &NodeState, packet: &Packet, path: Path) -> bool {
    let to = packet.destination.ip();
    let own = match to {
        // The kernel takes the unspecified address for loopback.
        IpAddr::V4(v4) if v4.is_loopback() || v4.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) if v6.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        _ => to,
    };
    if own.is_loopback() {
        // Packets to loopback addresses cannot be led elsewhere unless the kernel is told to let them
        // leave, and a pod's loopback addresses are its own.
        let from_node = path == Path::Socket && state.node.is_host(packet.source);
        if !from_node {
            return false;
        }
    }
    state.node_port_addresses.contains(&own)
}

/// What becomes of a packet for a frontend.
fn serve(
    state: &NodeState,
    packet: &Packet,
    path: Path,
    key: &ServicePortKey,
    service: &ServiceState,
    frontend: Frontend,
) -> Verdict {
    let verdict = |outcome, reason, set, targets| Verdict {
        outcome,
        service: Some(key.clone()),
        frontend: Some(frontend),
        set,
        targets,
        reason,
    };
    if let Some(ranges) = &service.source_ranges
        && frontend.kind == FrontendKind::LoadBalancerIp
    {
        match path {
            // The source is not known yet: the packet path decides.
            Path::Socket => return verdict(Outcome::Pass, Reason::PacketPathDecides, None, vec![]),
            Path::Packet if !may_come(ranges, packet) => {
                return verdict(Outcome::Drop, Reason::SourceRange, None, vec![]);
            }
            Path::Packet => {}
        }
    }
    let route = route::of(state, packet, path, service, frontend);
    let endpoints = match route.set {
        TrafficPolicy::Cluster => &service.cluster_endpoints,
        TrafficPolicy::Local => &service.local_endpoints,
    };
    let targets: Vec<_> = endpoints
        .iter()
        .flat_map(|set| set.iter())
        .map(|endpoint| Target {
            address: endpoint.address,
            masquerade: match path {
                Path::Packet => route.masquerade.or_else(|| {
                    // Without it the endpoint would answer itself, past this node.
                    (endpoint.address.ip() == packet.source).then_some(Masquerade::Hairpin)
                }),
                // The endpoint sees the true source: there is none yet that could be rewritten.
                Path::Socket => None,
            },
        })
        .collect();
    let (outcome, reason) = if !targets.is_empty() {
        (Outcome::Forward, route.reason)
    } else if service.has_any_endpoints {
        // A load balancer that tries another node must not take it for a refusal.
        (Outcome::Drop, Reason::NoneByPolicy)
    } else {
        (Outcome::Reject, Reason::NoEndpoints)
    };
    verdict(outcome, reason, Some(route.set), targets)
}

/// Whether the ranges let `packet` in.
fn may_come(ranges: &SourceRanges, packet: &Packet) -> bool {
    is_within(ranges, packet) || (ranges.own_address && packet.source == packet.destination.ip())
}

/// Whether the source of `packet` is in one of the ranges.
fn is_within(ranges: &SourceRanges, packet: &Packet) -> bool {
    let mut all = ranges.ranges.iter();
    all.any(|range| range.contains(&packet.source))
}

/// What becomes of a packet that no frontend waits for.
fn stray(state: &NodeState, packet: &Packet) -> Verdict {
    let to = packet.destination.ip();
    let is_live = state
        .services
        .values()
        .flat_map(|service| &service.frontends)
        .any(|frontend| frontend.address == Some(to) && frontend.kind == FrontendKind::ClusterIp);
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

#[cfg(test)]
mod tests;
