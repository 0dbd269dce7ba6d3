//! States that the model could make, and some that it never would.

use std::{
    net::{IpAddr, SocketAddr},
    num::{NonZeroU16, NonZeroU32},
    sync::Arc,
};

use proptest::{collection::vec, option, prelude::*};
use proxy_model::{
    Diagnostic, Endpoint, Frontend, FrontendKind, HealthCheck, HealthCheckKey, IpFamily, IpNet,
    Node, NodeInfo, NodeState, Protocol, ServiceFailure, ServiceName, ServicePortKey, ServiceState,
    SourceRanges, TrafficPolicy,
    oracle::{Detector, Traffic},
};

use crate::NodeFacts;

fn ordered<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort_unstable();
    all.dedup();
    all
}

fn name() -> impl Strategy<Value = Arc<str>> {
    prop_oneof![Just("web"), Just("dns"), Just("a"), Just("")].prop_map(Into::into)
}

fn text() -> impl Strategy<Value = Arc<str>> {
    any::<String>().prop_map(Into::into)
}

fn family() -> impl Strategy<Value = IpFamily> {
    prop_oneof![Just(IpFamily::V4), Just(IpFamily::V6)]
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![
        Just(Protocol::Tcp),
        Just(Protocol::Udp),
        Just(Protocol::Sctp)
    ]
}

fn policy() -> impl Strategy<Value = TrafficPolicy> {
    prop_oneof![Just(TrafficPolicy::Cluster), Just(TrafficPolicy::Local)]
}

fn address_of(family: IpFamily) -> BoxedStrategy<IpAddr> {
    match family {
        IpFamily::V4 => any::<[u8; 4]>().prop_map(IpAddr::from).boxed(),
        IpFamily::V6 => prop_oneof![
            any::<[u8; 16]>().prop_map(IpAddr::from),
            // IPv4-mapped: still an IPv6 address.
            any::<[u8; 4]>().prop_map(|v4| std::net::Ipv4Addr::from(v4).to_ipv6_mapped().into()),
        ]
        .boxed(),
    }
}

fn address() -> impl Strategy<Value = IpAddr> {
    family().prop_flat_map(address_of)
}

fn net_of(family: IpFamily) -> impl Strategy<Value = IpNet> {
    let longest: u8 = match family {
        IpFamily::V4 => 32,
        IpFamily::V6 => 128,
    };
    (address_of(family), 0..=longest)
        .prop_map(|(address, length)| IpNet::new(address, length).unwrap())
}

fn net() -> impl Strategy<Value = IpNet> {
    family().prop_flat_map(net_of)
}

/// What identifies a Service port, of few different ones.
pub fn key() -> impl Strategy<Value = ServicePortKey> {
    (name(), name(), name(), protocol(), family()).prop_map(
        |(namespace, name, port, protocol, family)| ServicePortKey {
            service: ServiceName { namespace, name },
            port,
            protocol,
            family,
        },
    )
}

fn frontend(family: IpFamily) -> impl Strategy<Value = Frontend> {
    let kind = prop_oneof![
        Just(FrontendKind::ClusterIp),
        Just(FrontendKind::LoadBalancerIp),
        Just(FrontendKind::ExternalIp),
        Just(FrontendKind::NodePort),
    ];
    (kind, address_of(family), 1..=u16::MAX).prop_map(|(kind, address, port)| Frontend {
        kind,
        address: (kind != FrontendKind::NodePort).then_some(address),
        port,
    })
}

fn endpoints(family: IpFamily) -> impl Strategy<Value = Option<Arc<[Endpoint]>>> {
    let one = (address_of(family), 1..=u16::MAX, any::<Option<bool>>());
    let one = one.prop_map(|(address, port, local)| Endpoint {
        address: SocketAddr::new(address, port),
        local,
    });
    option::of(vec(one, 0..5).prop_map(|all| ordered(all).into()))
}

/// What to do for a Service port of `family`.
pub fn service(family: IpFamily) -> impl Strategy<Value = Arc<ServiceState>> {
    let ranges = (vec(net_of(family), 0..3), any::<bool>()).prop_map(|(ranges, own_address)| {
        Arc::new(SourceRanges {
            ranges: ordered(ranges),
            own_address,
        })
    });
    (
        vec(frontend(family), 0..4).prop_map(ordered),
        endpoints(family),
        endpoints(family),
        any::<bool>(),
        policy(),
        policy(),
        option::of(any::<NonZeroU32>()),
        option::of(ranges),
    )
        .prop_map(
            |(
                frontends,
                cluster_endpoints,
                local_endpoints,
                has_any_endpoints,
                internal_policy,
                external_policy,
                affinity,
                source_ranges,
            )| {
                Arc::new(ServiceState {
                    frontends,
                    cluster_endpoints,
                    local_endpoints,
                    has_any_endpoints,
                    internal_policy,
                    external_policy,
                    affinity,
                    source_ranges,
                })
            },
        )
}

fn detector() -> impl Strategy<Value = Detector> {
    prop_oneof![
        Just(Detector::None),
        vec(net(), 0..3).prop_map(Detector::ClusterCidr),
        Just(Detector::NodeCidr),
        text().prop_map(Detector::BridgeInterface),
        text().prop_map(Detector::InterfaceNamePrefix),
    ]
}

fn node() -> impl Strategy<Value = Arc<Node>> {
    (
        text(),
        option::of(text()),
        vec(net(), 0..3),
        vec(address(), 0..3),
        any::<bool>(),
    )
        .prop_map(|(name, zone, pod_cidrs, addresses, eligible)| {
            Arc::new(Node {
                name,
                zone,
                pod_cidrs,
                addresses,
                eligible,
            })
        })
}

/// All that is said of a node.
pub fn facts() -> impl Strategy<Value = NodeFacts> {
    (
        text(),
        option::of(node()),
        vec(address(), 0..4),
        detector(),
        any::<bool>(),
        vec(address(), 0..4),
        vec(net(), 0..3),
    )
        .prop_map(
            |(name, object, host, detector, masquerade_all, node_ports, cidrs)| NodeFacts {
                node: NodeInfo {
                    name,
                    object,
                    host_addresses: ordered(host).into(),
                },
                traffic: Traffic {
                    detector,
                    masquerade_all,
                },
                node_port_addresses: ordered(node_ports).into(),
                service_cidrs: ordered(cidrs).into(),
            },
        )
}

/// What load balancers are told.
pub fn health_check() -> impl Strategy<Value = (HealthCheckKey, HealthCheck)> {
    (name(), name(), family(), any::<NonZeroU16>(), any::<u32>()).prop_map(
        |(namespace, name, family, port, count)| {
            let service = ServiceName { namespace, name };
            let local_endpoints = count as usize;
            (
                HealthCheckKey { service, family },
                HealthCheck {
                    port,
                    local_endpoints,
                },
            )
        },
    )
}

/// What is wrong with something.
pub fn diagnostic() -> impl Strategy<Value = Diagnostic> {
    (name(), any::<String>(), any::<String>()).prop_map(|(object, field, message)| Diagnostic {
        object,
        field,
        message,
    })
}

/// A node-local state.
pub fn state() -> impl Strategy<Value = NodeState> {
    let service = key().prop_flat_map(|key| {
        let family = key.family;
        (Just(key), service(family))
    });
    (
        facts(),
        vec(service, 0..12),
        vec(health_check(), 0..4),
        vec(diagnostic(), 0..6),
    )
        .prop_map(|(facts, services, health_checks, diagnostics)| {
            let mut state = NodeState {
                services: services.into_iter().collect(),
                health_checks: health_checks.into_iter().collect(),
                diagnostics: ordered(diagnostics).into(),
                ..NodeState::default()
            };
            facts.put(&mut state);
            state
        })
}

/// States as they follow on one another: each keeps most of the one before.
pub fn walk(longest: usize) -> impl Strategy<Value = Vec<NodeState>> {
    let step = (state(), vec(any::<bool>(), 12), any::<[bool; 3]>());
    vec(step, 1..longest).prop_map(|steps| {
        let mut states: Vec<NodeState> = Vec::new();
        for (new, kept, parts) in steps {
            let next = match states.last() {
                None => new,
                Some(before) => mix(before, new, &kept, parts),
            };
            states.push(next);
        }
        states
    })
}

fn mix(before: &NodeState, new: NodeState, kept: &[bool], parts: [bool; 3]) -> NodeState {
    let mut next = before.clone();
    for ((key, _), kept) in before.services.iter().zip(kept) {
        if !kept {
            next.services.remove(key);
        }
    }
    let [facts, checks, diagnostics] = parts;
    if facts {
        NodeFacts::of(&new).put(&mut next);
    }
    if checks {
        next.health_checks = new.health_checks;
    }
    if diagnostics {
        next.diagnostics = new.diagnostics;
    }
    next.services.extend(new.services.into_iter().take(2));
    next
}

/// A state with `count` Services; `version` is in each of them.
pub fn numbered(count: u16, version: u16) -> NodeState {
    let service = |number: u16| {
        let key = ServicePortKey {
            service: ServiceName::new("shop", format!("s{number:05}")),
            port: "http".into(),
            protocol: Protocol::Tcp,
            family: IpFamily::V4,
        };
        let [high, low] = number.to_be_bytes();
        let endpoint = Endpoint::at(SocketAddr::from(([10, 244, high, low], version)));
        let state = ServiceState {
            frontends: vec![Frontend {
                kind: FrontendKind::ClusterIp,
                address: Some([10, 96, high, low].into()),
                port: 80,
            }],
            cluster_endpoints: Some([endpoint].into()),
            local_endpoints: None,
            has_any_endpoints: true,
            internal_policy: TrafficPolicy::Cluster,
            external_policy: TrafficPolicy::Cluster,
            affinity: None,
            source_ranges: None,
        };
        (key, Arc::new(state))
    };
    NodeState {
        services: (0..count).map(service).collect(),
        ..NodeState::default()
    }
}

/// A Service port that every state of [`numbered`] has.
pub fn first_key() -> ServicePortKey {
    let state = numbered(1, 1);
    state.services.keys().next().unwrap().clone()
}

/// That it could not be programmed.
pub fn failure(reason: &str) -> ServiceFailure {
    ServiceFailure {
        key: first_key(),
        reason: reason.to_owned(),
    }
}
