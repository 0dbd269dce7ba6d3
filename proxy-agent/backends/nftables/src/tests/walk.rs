//! Random states, one after the other: few addresses, so that Services share endpoints and take
//! over each other's frontends.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroU32,
    sync::Arc,
};

use proptest::{collection, option, prelude::*};
use proxy_model::{
    Endpoint, Frontend, FrontendKind, IpFamily, IpNet, NodeState, Protocol, ServiceName,
    ServicePortKey, ServiceState, SourceRanges, TrafficPolicy,
    oracle::{Detector, Traffic},
};

/// A state.
#[derive(Debug, Clone)]
pub struct Step(pub NodeState);

/// A few states.
pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    collection::vec(state(), 1..6)
}

fn address(family: IpFamily, network: u8, number: u8) -> IpAddr {
    match family {
        IpFamily::V4 => Ipv4Addr::new(10, network, 0, number).into(),
        IpFamily::V6 => Ipv6Addr::new(0xfd00, network.into(), 0, 0, 0, 0, 0, number.into()).into(),
    }
}

fn family() -> impl Strategy<Value = IpFamily> {
    prop_oneof![Just(IpFamily::V4), Just(IpFamily::V6)]
}

fn policy() -> impl Strategy<Value = TrafficPolicy> {
    prop_oneof![Just(TrafficPolicy::Cluster), Just(TrafficPolicy::Local)]
}

fn endpoints(family: IpFamily) -> impl Strategy<Value = Option<Arc<[Endpoint]>>> {
    option::of(
        collection::btree_set(1_u8..6, 0..4).prop_map(move |numbers| {
            let endpoint = |number| Endpoint::at(SocketAddr::new(address(family, 1, number), 8080));
            numbers.into_iter().map(endpoint).collect()
        }),
    )
}

fn ranges(family: IpFamily) -> impl Strategy<Value = Option<Arc<SourceRanges>>> {
    let range = (1_u8..4, prop_oneof![Just(24_u8), Just(32)]);
    let ranges = collection::vec(range, 1..4).prop_map(move |ranges| {
        let net = |(number, length): (u8, u8)| {
            IpNet::new(address(family, 9, number), length).expect("a length of both families")
        };
        ranges.into_iter().map(net).collect::<Vec<_>>()
    });
    option::of((ranges, any::<bool>()).prop_map(|(ranges, own_address)| {
        Arc::new(SourceRanges {
            ranges,
            own_address,
        })
    }))
}

type Asked = (bool, bool, bool, bool);

/// A Service port; its frontends follow from its number, so that no two have the same.
fn service() -> impl Strategy<Value = (u8, IpFamily, Asked, ServiceState)> {
    (0_u8..4, family(), any::<Asked>()).prop_flat_map(|(number, family, asked)| {
        let affinity = option::of(prop_oneof![Just(10_u32), Just(20)]);
        (
            (Just(number), Just(family), Just(asked)),
            (endpoints(family), endpoints(family), any::<bool>()),
            (policy(), policy(), affinity, ranges(family)),
        )
            .prop_map(|((number, family, asked), sets, rules)| {
                let (cluster_endpoints, local_endpoints, has_any_endpoints) = sets;
                let (internal_policy, external_policy, affinity, source_ranges) = rules;
                let state = ServiceState {
                    frontends: Vec::new(),
                    cluster_endpoints,
                    local_endpoints,
                    has_any_endpoints,
                    internal_policy,
                    external_policy,
                    affinity: affinity.and_then(NonZeroU32::new),
                    source_ranges,
                };
                (number, family, asked, state)
            })
    })
}

fn frontends(number: u8, family: IpFamily, asked: Asked) -> Vec<Frontend> {
    let (cluster, balanced, external, node_port) = asked;
    let port = 80 + u16::from(number);
    let kinds = [
        (cluster, FrontendKind::ClusterIp, Some(96)),
        (balanced, FrontendKind::LoadBalancerIp, Some(97)),
        (external, FrontendKind::ExternalIp, Some(98)),
        (node_port, FrontendKind::NodePort, None),
    ];
    let asked = kinds.into_iter().filter(|(asked, ..)| *asked);
    asked
        .map(|(_, kind, network)| Frontend {
            kind,
            // All share one ClusterIP.
            address: network.map(|network| address(family, network, 1)),
            port,
        })
        .collect()
}

fn key(name: &str, family: IpFamily) -> ServicePortKey {
    ServicePortKey {
        service: ServiceName::new("shop", name),
        port: "http".into(),
        protocol: Protocol::Tcp,
        family,
    }
}

fn detector() -> impl Strategy<Value = Detector> {
    prop_oneof![
        Just(Detector::None),
        Just(Detector::ClusterCidr(vec![
            "10.1.0.0/16".parse().expect("a network")
        ])),
        Just(Detector::BridgeInterface("br0".into())),
        Just(Detector::InterfaceNamePrefix("veth".into())),
    ]
}

/// One of them.
pub fn state() -> impl Strategy<Value = Step> {
    (
        collection::vec((service(), 0_u8..2), 0..5),
        (detector(), any::<bool>()),
        collection::btree_set(1_u8..4, 0..3),
        any::<bool>(),
    )
        .prop_map(|(services, (detector, masquerade_all), nodes, cidrs)| {
            let mut state = NodeState {
                traffic: Traffic {
                    detector,
                    masquerade_all,
                },
                node_port_addresses: nodes
                    .into_iter()
                    .map(|number| address(IpFamily::V4, 200, number))
                    .collect(),
                service_cidrs: if cidrs {
                    ["10.96.0.0/16", "fd00:96::/64"]
                        .map(|cidr| cidr.parse().expect("a network"))
                        .into()
                } else {
                    Arc::default()
                },
                ..NodeState::default()
            };
            for ((number, family, asked, mut service), owner) in services {
                service.frontends = frontends(number, family, asked);
                // Of two owners, so that frontends go from one Service to another.
                let other = key(&format!("s{number}-{}", 1 - owner), family);
                state.services.remove(&other);
                let key = key(&format!("s{number}-{owner}"), family);
                state.services.insert(key, Arc::new(service));
            }
            Step(state)
        })
}

/// `state` with one more Service, which shares nothing with the others.
pub fn with_one_more(state: &NodeState) -> NodeState {
    let mut more = state.clone();
    let endpoint = Endpoint::at(SocketAddr::new(address(IpFamily::V4, 2, 1), 8080));
    let service = ServiceState {
        frontends: vec![Frontend {
            kind: FrontendKind::ClusterIp,
            address: Some(address(IpFamily::V4, 99, 1)),
            port: 80,
        }],
        cluster_endpoints: Some(Arc::new([endpoint])),
        local_endpoints: None,
        has_any_endpoints: true,
        internal_policy: TrafficPolicy::Cluster,
        external_policy: TrafficPolicy::Cluster,
        affinity: None,
        source_ranges: None,
    };
    more.services
        .insert(key("one-more", IpFamily::V4), Arc::new(service));
    more
}
