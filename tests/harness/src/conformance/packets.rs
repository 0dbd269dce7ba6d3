//! Which packets ask everything that a state answers: from every kind of source to every frontend,
//! past and present, and to what lies beside them.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use proxy_model::{
    FrontendKind, IpFamily, IpNet, NodeState, Protocol,
    oracle::{Detector, Packet},
};

/// A port that no Service has.
const UNKNOWN_PORT: u16 = 4999;

/// Pods of this node and of another, and who is neither.
const PODS: [&str; 4] = [
    "10.244.0.9",
    "10.244.1.9",
    "fd00:10:244::9",
    "fd00:10:244:1::9",
];
const STRANGERS: [&str; 2] = ["203.0.113.9", "2001:db8:9::9"];

/// How many endpoints of a state dial as clients, and how many ranges of sources are tried.
const ENDPOINTS: usize = 3;
const RANGES: usize = 4;

/// A place that packets are sent to.
pub type Place = (SocketAddr, Protocol);

/// The interfaces by which `detector` tells packets apart: one of the node's pods, one that is not but
/// begins alike.
pub fn interfaces(detector: &Detector) -> Vec<Arc<str>> {
    match detector {
        Detector::None | Detector::ClusterCidr(_) | Detector::NodeCidr => vec![],
        Detector::BridgeInterface(name) => vec![Arc::clone(name), format!("{name}9").into()],
        Detector::InterfaceNamePrefix(prefix) => vec![format!("{prefix}9").into(), "eth9".into()],
    }
}

/// The places that `state` makes special, on a node with the addresses `own`.
pub fn places(state: &NodeState, own: &[IpAddr]) -> BTreeSet<Place> {
    let mut places = BTreeSet::new();
    for (key, service) in &state.services {
        for frontend in &service.frontends {
            let addresses = match frontend.address {
                Some(address) => vec![address],
                None => node_addresses(key.family, own),
            };
            places.extend(
                addresses
                    .iter()
                    .map(|address| (SocketAddr::new(*address, frontend.port), key.protocol)),
            );
            if let (FrontendKind::ClusterIp, Some(address)) = (frontend.kind, frontend.address) {
                places.insert((SocketAddr::new(address, UNKNOWN_PORT), key.protocol));
                let other = match key.protocol {
                    Protocol::Tcp => Protocol::Udp,
                    Protocol::Udp => Protocol::Sctp,
                    Protocol::Sctp => Protocol::Tcp,
                };
                places.insert((SocketAddr::new(address, frontend.port), other));
            }
        }
        let endpoints = service.cluster_endpoints.iter().flat_map(|set| set.iter());
        places.extend(endpoints.take(1).map(|one| (one.address, key.protocol)));
    }
    for cidr in state.service_cidrs.iter() {
        let last = match cidr {
            IpNet::V4(cidr) => IpAddr::V4(cidr.broadcast()),
            IpNet::V6(cidr) => IpAddr::V6(cidr.broadcast()),
        };
        places.insert((SocketAddr::new(last, 80), Protocol::Tcp));
    }
    places
}

/// Where NodePorts of this family might answer.
fn node_addresses(family: IpFamily, own: &[IpAddr]) -> Vec<IpAddr> {
    let loopback = match family {
        IpFamily::V4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpFamily::V6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    let own = own.iter().copied().chain([loopback]);
    own.filter(|one| IpFamily::of(*one) == family).collect()
}

/// Who may send them, by `state`, on a node with the addresses `own`.
pub fn sources(state: &NodeState, own: &[IpAddr]) -> BTreeSet<IpAddr> {
    let known = PODS.iter().chain(&STRANGERS);
    let mut sources: BTreeSet<IpAddr> = known.filter_map(|text| text.parse().ok()).collect();
    sources.extend(own);
    let sets = state
        .services
        .values()
        .flat_map(|service| &service.cluster_endpoints);
    let endpoints = sets.flat_map(|set| set.iter()).map(|one| one.address.ip());
    let endpoints: BTreeSet<IpAddr> = endpoints.filter(|one| !one.is_loopback()).collect();
    sources.extend(endpoints.into_iter().take(ENDPOINTS));
    let mut ranged = BTreeSet::new();
    for service in state.services.values() {
        let Some(restricted) = &service.source_ranges else {
            continue;
        };
        ranged.extend(restricted.ranges.iter().filter_map(first_host));
        // The node itself may be the load balancer's address.
        let frontends = service.frontends.iter();
        let balanced = frontends.filter(|one| one.kind == FrontendKind::LoadBalancerIp);
        ranged.extend(balanced.filter_map(|one| one.address));
    }
    sources.extend(ranged.into_iter().take(RANGES));
    sources
}

/// Every source to each of `places` of its family.
pub fn all(state: &NodeState, places: &BTreeSet<Place>, own: &[IpAddr]) -> Vec<Packet> {
    let interfaces = interfaces(&state.traffic.detector);
    let mut packets = Vec::new();
    for source in sources(state, own) {
        for (destination, protocol) in places {
            if IpFamily::of(source) != IpFamily::of(destination.ip()) {
                continue;
            }
            let on = |interface| Packet {
                source,
                destination: *destination,
                protocol: *protocol,
                interface,
            };
            packets.push(on(None));
            if !own.contains(&source) {
                packets.extend(interfaces.iter().map(|name| on(Some(Arc::clone(name)))));
            }
        }
    }
    // What the node sends to itself.
    for (destination, protocol) in places {
        if destination.ip().is_loopback() {
            packets.push(Packet {
                source: destination.ip(),
                destination: *destination,
                protocol: *protocol,
                interface: None,
            });
        }
    }
    packets
}

/// An address in the middle of nothing in particular, if the range has any that can be a source.
fn first_host(range: &IpNet) -> Option<IpAddr> {
    // Of a range of everything, any address will do, and there are enough.
    (range.prefix_len() > 0)
        .then(|| range.hosts().next())
        .flatten()
        .filter(|address| !address.is_loopback() && !address.is_unspecified())
}
