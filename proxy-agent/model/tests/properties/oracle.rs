//! The oracle answers any question about any state, and its answers are borne out by the state.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use proptest::{prelude::*, sample::select};
use proxy_model::{
    NodeState, Protocol, compute,
    oracle::{Detector, Outcome, Packet, Path, Traffic, verdict},
};

use crate::walk::{self, NODE, Objects};

/// Addresses of the walk's universe, and strangers.
fn address() -> impl Strategy<Value = IpAddr> {
    let known = select(
        &[
            "10.96.0.1",
            "10.96.0.2",
            "10.96.0.99",
            "::ffff:10.96.0.1",
            "fd00:96::1",
            "fd00:96::2",
            "fd00:96::99",
            "10.0.0.1",
            "10.0.0.2",
            "fd00::1",
            "192.0.2.1",
        ][..],
    );
    prop_oneof![
        4 => known.prop_map(|address| address.parse().unwrap()),
        1 => any::<IpAddr>(),
    ]
}

fn packet() -> impl Strategy<Value = Packet> {
    let port = prop_oneof![4 => select(&[53, 80][..]), 1 => any::<u16>()];
    let protocol = select(&[Protocol::Tcp, Protocol::Udp, Protocol::Sctp][..]);
    let interface = prop::option::of(select(&["cbr0", "veth1", "eth0"][..]));
    (address(), address(), port, protocol, interface).prop_map(
        |(source, destination, port, protocol, interface)| Packet {
            source,
            destination: SocketAddr::new(destination, port),
            protocol,
            interface: interface.map(Into::into),
        },
    )
}

fn traffic() -> impl Strategy<Value = Traffic> {
    let cidrs = |cidrs: &[&str]| {
        Detector::ClusterCidr(cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect())
    };
    let detectors = vec![
        Detector::None,
        cidrs(&["10.0.0.0/16"]),
        cidrs(&["fd00::/64", "10.0.0.0/16"]),
        Detector::NodeCidr,
        Detector::BridgeInterface("cbr0".into()),
        Detector::InterfaceNamePrefix("veth".into()),
    ];
    (select(detectors), any::<bool>()).prop_map(|(detector, masquerade_all)| Traffic {
        detector,
        masquerade_all,
    })
}

/// Every endpoint of every set.
fn endpoints(state: &NodeState) -> BTreeSet<SocketAddr> {
    let sets = |service: &proxy_model::ServiceState| {
        [
            service.cluster_endpoints.clone(),
            service.local_endpoints.clone(),
        ]
    };
    state
        .services
        .values()
        .flat_map(|service| sets(service))
        .flatten()
        .flat_map(|set| set.iter().map(|one| one.address).collect::<Vec<_>>())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_borne_out_by_the_state(
        steps in prop::collection::vec(walk::step(), 1..40),
        traffic in traffic(),
        packets in prop::collection::vec(packet(), 1..20),
    ) {
        let mut objects = Objects::default();
        let mut state = compute(NODE, steps.into_iter().flat_map(|step| objects.take(step)));
        state.traffic = traffic;
        let endpoints = endpoints(&state);
        for packet in packets {
            let by_packet = verdict(&state, &packet, Path::Packet);
            let by_socket = verdict(&state, &packet, Path::Socket);
            for verdict in [&by_packet, &by_socket] {
                let forwards = verdict.outcome == Outcome::Forward;
                prop_assert_eq!(forwards, !verdict.targets.is_empty());
                prop_assert!(!forwards || verdict.service.is_some());
                prop_assert_eq!(verdict.service.is_some(), verdict.frontend.is_some());
                for target in &verdict.targets {
                    prop_assert!(endpoints.contains(&target.address), "{:?}", target);
                }
                if let Some(key) = &verdict.service {
                    prop_assert!(state.services.contains_key(key));
                    prop_assert_eq!(key.protocol, packet.protocol);
                } else {
                    prop_assert!(verdict.outcome != Outcome::Forward);
                }
            }
            prop_assert!(by_socket.targets.iter().all(|target| target.masquerade.is_none()));
            if packet.protocol == Protocol::Sctp {
                prop_assert_eq!(by_socket.outcome, Outcome::Pass);
            } else if by_packet.service.is_some() {
                // Only masquerading may differ.
                prop_assert_eq!(by_packet.outcome, by_socket.outcome);
                prop_assert_eq!(&by_packet.service, &by_socket.service);
                let landing = |verdict: &proxy_model::oracle::Verdict| -> Vec<_> {
                    verdict.targets.iter().map(|target| target.address).collect()
                };
                prop_assert_eq!(landing(&by_packet), landing(&by_socket));
            } else {
                prop_assert_eq!(by_socket.outcome, Outcome::Pass);
            }
        }
    }
}
