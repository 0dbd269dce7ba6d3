//! Model values in the form the maps hold.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroU32,
    sync::Arc,
};

use ipnet::IpNet;
use proxy_common::{
    address,
    endpoint::{Endpoint, ON_NODE, SlotValue},
    frontend::{
        ENDPOINTS_EXIST, FrontendKey, LEADS_TO_LOCAL, LEFT_ALONE, MASQUERADED,
        MASQUERADED_ELSEWHERE, OUTSIDE_TO_CLUSTER, OUTSIDE_TO_LOCAL, RANGED,
    },
    node::{NodeAddressKey, NodeAddressValue},
    ranges::{MAPPED_BITS, RangeKey},
    service::{ServiceKey, ServiceValue, from_text, to_text},
    socket,
};
use proxy_model::{
    Frontend, FrontendKind, IpFamily, NodeState, ObjectName, Protocol, ServicePortKey,
    ServiceState, TrafficPolicy,
};

/// The IP protocol number that sockets of `protocol` have; `None` for SCTP, which the socket
/// hooks never see (tried on 5.10, 6.1 and 6.12).
pub fn protocol_number(protocol: Protocol) -> Option<u8> {
    match protocol {
        Protocol::Tcp => Some(socket::TCP),
        Protocol::Udp => Some(socket::UDP),
        Protocol::Sctp => None,
    }
}

/// Whether sockets ever dial this Service port in a way that the hooks see.
pub fn is_seen(key: &ServicePortKey) -> bool {
    protocol_number(key.protocol).is_some()
}

/// An entry of FRONTENDS, as far as it does not depend on numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedFrontend {
    /// Its key.
    pub key: FrontendKey,
    /// Its flags.
    pub flags: u32,
    /// See [`proxy_common::frontend::FrontendValue::affinity`].
    pub affinity: u32,
}

/// What FRONTENDS shall hold for a Service port whose protocol has this number.
pub fn frontends(
    key: &ServicePortKey,
    state: &ServiceState,
    protocol: u8,
    leaves: Leaves,
) -> impl Iterator<Item = WantedFrontend> {
    let family = key.family;
    state.frontends.iter().map(move |frontend| WantedFrontend {
        key: frontend_key(frontend, family, protocol),
        flags: flags(frontend.kind, state, leaves)
            | outside((frontend.kind, family), state, leaves),
        affinity: state.affinity.map_or(0, NonZeroU32::get),
    })
}

/// What RANGES shall hold for the Service port with this number and these frontends: nothing where no
/// program would ask.
pub fn ranges(
    service: u32,
    state: &ServiceState,
    frontends: &[WantedFrontend],
) -> BTreeSet<RangeKey> {
    let mut frontends = frontends.iter();
    let is_asked = frontends.any(|frontend| frontend.flags & RANGED != 0);
    let ranges = state.source_ranges.as_ref().filter(|_| is_asked);
    let ranges = ranges.iter().flat_map(|all| &all.ranges);
    ranges.map(|range| range_key(service, range)).collect()
}

fn range_key(service: u32, range: &IpNet) -> RangeKey {
    let before = match range {
        IpNet::V4(_) => MAPPED_BITS,
        IpNet::V6(_) => 0,
    };
    let length = before + u32::from(range.prefix_len());
    RangeKey::new(service, address::from_ip(range.addr()), length)
}

/// The range that an entry of RANGES is about; `None` when it makes no sense.
pub fn range(key: &RangeKey) -> Option<IpNet> {
    let length = key.length()?;
    let (address, length) = match address::to_ip(key.address) {
        // A shorter one has addresses of IPv6, too.
        IpAddr::V4(address) if length < MAPPED_BITS => {
            (IpAddr::V6(address.to_ipv6_mapped()), length)
        }
        address @ IpAddr::V4(_) => (address, length - MAPPED_BITS),
        address @ IpAddr::V6(_) => (address, length),
    };
    IpNet::new(address, u8::try_from(length).ok()?).ok()
}

/// What is left to a packet backend beneath, besides load-balancer IPs with source ranges: those no
/// hook can decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leaves {
    /// ClusterIPs: with `masqueradeAll` their endpoints shall see this node, and only packets can be
    /// masqueraded.
    pub cluster_ips: bool,
    /// Service ports that do not fit: all of each, instead of what fits of it.
    pub what_does_not_fit: bool,
    /// And of what clients outside dial:
    pub masqueraded: Masqueraded,
}

/// Where endpoints shall see this node in the place of clients outside: behind external frontends that
/// lead to the cluster set, and
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Masqueraded {
    /// behind ClusterIPs, of IPv4 and of IPv6: with a detector that tells who is foreign, or `masqueradeAll`;
    pub cluster_ips: [bool; 2],
    /// but not where they are on this node themselves (`--keep-client-address`).
    pub only_elsewhere: bool,
}

impl Masqueraded {
    /// As `state` and flags say.
    pub fn of(state: &NodeState, keeps_clients: bool) -> Self {
        let traffic = &state.traffic;
        let is_told = |family| traffic.detector.tells(&state.node, family);
        Self {
            cluster_ips: [IpFamily::V4, IpFamily::V6]
                .map(|family| traffic.masquerade_all || is_told(family)),
            only_elsewhere: keeps_clients,
        }
    }
}

fn frontend_key(frontend: &Frontend, family: IpFamily, protocol: u8) -> FrontendKey {
    let key = |address: IpAddr| {
        let words = address::to_words(&address::from_ip(address));
        FrontendKey::new(words, frontend.port, protocol)
    };
    match (frontend.address, family) {
        (Some(address), _) => key(address),
        (None, IpFamily::V4) => key(Ipv4Addr::UNSPECIFIED.into()).of_node_port(),
        (None, IpFamily::V6) => key(Ipv6Addr::UNSPECIFIED.into()).of_node_port(),
    }
}

/// Sockets are always on this node: whatever is for clients outside the cluster leads them to the
/// cluster set, also with external policy Local.
fn flags(kind: FrontendKind, state: &ServiceState, leaves: Leaves) -> u32 {
    let local = kind == FrontendKind::ClusterIp && state.internal_policy == TrafficPolicy::Local;
    let ranged = kind == FrontendKind::LoadBalancerIp && state.source_ranges.is_some();
    let left = kind == FrontendKind::ClusterIp && leaves.cluster_ips;
    [
        (LEADS_TO_LOCAL, local),
        (ENDPOINTS_EXIST, state.has_any_endpoints),
        (LEFT_ALONE, ranged || left),
    ]
    .into_iter()
    .filter_map(|(flag, set)| set.then_some(flag))
    .sum()
}

/// What programs on devices do for clients outside, and whether endpoints see this node in their place.
fn outside((kind, family): (FrontendKind, IpFamily), state: &ServiceState, leaves: Leaves) -> u32 {
    let external = kind.is_external();
    let policy = if external {
        state.external_policy
    } else {
        state.internal_policy
    };
    let ranged = kind == FrontendKind::LoadBalancerIp && state.source_ranges.is_some();
    let is_cluster = policy == TrafficPolicy::Cluster;
    let keeps = leaves.masqueraded.only_elsewhere;
    let masqueraded = if external {
        is_cluster
    } else {
        leaves.masqueraded.cluster_ips[usize::from(family == IpFamily::V6)]
    };
    [
        (OUTSIDE_TO_LOCAL, !is_cluster),
        (OUTSIDE_TO_CLUSTER, is_cluster),
        (MASQUERADED, masqueraded && !keeps),
        (MASQUERADED_ELSEWHERE, masqueraded && is_cluster && keeps),
        (RANGED, ranged),
    ]
    .into_iter()
    .filter_map(|(flag, set)| set.then_some(flag))
    .sum()
}

/// The entry of NODE_ADDRS for `address`.
pub fn node_address(address: IpAddr) -> (NodeAddressKey, NodeAddressValue) {
    let key = NodeAddressKey {
        address: address::from_ip(address),
    };
    (key, NodeAddressValue { present: 1 })
}

/// Value of SERVICES; `None` when a name is longer than Kubernetes allows.
pub fn service_value(service: u32, key: &ServicePortKey) -> Option<ServiceValue> {
    Some(ServiceValue {
        service,
        protocol: protocol_number(key.protocol)?,
        family: match key.family {
            IpFamily::V4 => 4,
            IpFamily::V6 => 6,
        },
        padding: 0,
        namespace: to_text(&key.service.namespace)?,
        name: to_text(&key.service.name)?,
        port_name: to_text(&key.port)?,
    })
}

/// The Service port that an entry of SERVICES names; `None` when it makes no sense.
pub fn service_key(key: ServiceKey, value: &ServiceValue) -> Option<ServicePortKey> {
    if key.service != value.service {
        return None;
    }
    Some(ServicePortKey {
        service: ObjectName::new(from_text(&value.namespace)?, from_text(&value.name)?),
        port: Arc::from(from_text(&value.port_name)?),
        protocol: match value.protocol {
            socket::TCP => Protocol::Tcp,
            socket::UDP => Protocol::Udp,
            _ => return None,
        },
        family: match value.family {
            4 => IpFamily::V4,
            6 => IpFamily::V6,
            _ => return None,
        },
    })
}

/// Value of SLOTS.
pub fn slot_value(set: u32, endpoint: u32, at: SocketAddr, is_here: bool) -> SlotValue {
    let (port, address) = (at.port(), address::from_ip(at.ip()));
    SlotValue::new(
        set,
        &Endpoint {
            number: endpoint,
            port,
            flags: if is_here { ON_NODE } else { 0 },
            address,
        },
    )
}

/// Whether a slot's endpoint is on this node.
pub const fn is_here(value: &SlotValue) -> bool {
    value.flags & ON_NODE != 0
}

/// Where a slot leads.
pub fn slot_address(value: &SlotValue) -> SocketAddr {
    SocketAddr::new(address::to_ip(value.address), value.port)
}
