//! Expectations and traffic, right and wrong, against small states.

use std::{num::NonZeroU32, sync::Arc};

use proxy_model::{
    ClusterEvent, Conditions, EndpointSlice, IpFamily, Service, ServiceName, ServicePort,
    SliceEndpoint, SliceName, SlicePort, TrafficPolicy, compute,
};

use super::*;
use crate::scenario::probe;

/// UDP and TCP 80 at 10.96.0.1 lead to 10.244.0.`last`:80.
fn state(last: &[u8]) -> NodeState {
    let ports = [Protocol::Tcp, Protocol::Udp];
    let name = ServiceName::new("shop", "web");
    let service = Service {
        name: name.clone(),
        cluster_ips: vec!["10.96.0.1".parse().unwrap()],
        ports: ports
            .map(|protocol| ServicePort {
                name: protocol.as_str().into(),
                protocol,
                port: 80,
                node_port: None,
            })
            .into(),
        internal_policy: TrafficPolicy::Cluster,
        ..Service::default()
    };
    let endpoint = |last: &u8| SliceEndpoint {
        address: [10, 244, 0, *last].into(),
        conditions: Conditions {
            ready: true,
            serving: true,
            terminating: false,
        },
        node: None,
        hints: None,
    };
    let slice = EndpointSlice {
        name: SliceName::new("shop", "web-1"),
        service: name,
        family: IpFamily::V4,
        ports: ports
            .map(|protocol| SlicePort {
                name: protocol.as_str().into(),
                protocol,
                port: 80,
            })
            .into(),
        endpoints: last.iter().map(endpoint).collect(),
    };
    let events = [
        ClusterEvent::ServiceUpserted(service),
        ClusterEvent::SliceUpserted(slice),
    ];
    compute("node-a", events)
}

fn line(text: &str) -> Probe {
    probe::parse_lines(text, 0).unwrap().remove(0)
}

#[test]
fn what_a_file_expects_must_be_what_the_oracle_says() {
    let (both, second, none) = (state(&[1, 2]), state(&[2, 3]), state(&[]));
    let mut judge = Judge::default();
    for (state, text, agrees) in [
        (
            &both,
            "pod TCP 10.96.0.1:80 -> 10.244.0.1:80 10.244.0.2:80",
            true,
        ),
        (&both, "pod TCP 10.96.0.1:80 -> 10.244.0.1:80", false),
        (&both, "pod TCP 10.96.0.1:80 -> refused", false),
        (&both, "pod TCP 10.96.0.1:81 -> untouched", true),
        (&none, "pod TCP 10.96.0.1:80 -> refused", true),
        (&none, "pod TCP 10.96.0.1:80 -> unreachable", false),
        // What stays open may keep what it has, as long as that is allowed.
        (
            &both,
            "pod UDP@a 10.96.0.1:80 -> one of 10.244.0.1:80 10.244.0.2:80",
            true,
        ),
        (&second, "pod UDP@a 10.96.0.1:80 -> 10.244.0.2:80", true),
        (&second, "pod UDP@a 10.96.0.1:80 -> 10.244.0.1:80", false),
        (&second, "node UDP@a 10.96.0.1:80 -> 10.244.0.2:80", false),
        // What was refused has nothing to keep.
        (&none, "pod UDP@c 10.96.0.1:80 -> refused", true),
        (&both, "pod UDP@c 10.96.0.1:80 -> 10.244.0.1:80", false),
        // A connection outlives everything.
        (
            &both,
            "pod TCP@b 10.96.0.1:80 -> one of 10.244.0.1:80 10.244.0.2:80",
            true,
        ),
        (&none, "pod TCP@b 10.96.0.1:80 -> 10.244.0.1:80", true),
    ] {
        assert_eq!(
            judge.expectation(state, &line(text)).is_ok(),
            agrees,
            "{text}"
        );
    }
}

#[test]
fn clients_with_affinity_stick_and_no_others_do() {
    let sticking = |last: &[u8]| {
        let mut state = state(last);
        let services = state.services.iter().map(|(key, service)| {
            let mut service = (**service).clone();
            service.affinity = NonZeroU32::new(60);
            (key.clone(), Arc::new(service))
        });
        state.services = services.collect();
        state
    };
    let (one, both, spread) = (sticking(&[1]), sticking(&[1, 2]), state(&[1, 2]));
    let mut judge = Judge::default();
    for (state, text, agrees) in [
        (
            &spread,
            "pod TCP 10.96.0.1:80 -> sticky 10.244.0.1:80 10.244.0.2:80",
            false,
        ),
        (
            &both,
            "node TCP 10.96.0.1:80 -> 10.244.0.1:80 10.244.0.2:80",
            false,
        ),
        // One of two, out of nothing, is more than the oracle knows.
        (
            &both,
            "node TCP 10.96.0.1:80 -> sticky 10.244.0.1:80",
            false,
        ),
        (
            &both,
            "endpoints TCP 10.96.0.1:80 -> sticky 10.244.0.1:80 10.244.0.2:80",
            true,
        ),
        (&one, "pod UDP 10.96.0.1:80 -> sticky 10.244.0.1:80", true),
        // What a client had before is what it may keep, in the same protocol.
        (&both, "pod UDP 10.96.0.1:80 -> sticky 10.244.0.1:80", true),
        (&both, "pod UDP 10.96.0.1:80 -> sticky 10.244.0.3:80", false),
    ] {
        assert_eq!(
            judge.expectation(state, &line(text)).is_ok(),
            agrees,
            "{text}"
        );
    }
}

#[test]
fn what_traffic_does_must_be_what_the_oracle_allows() {
    let answers = |last: &[u8]| {
        let address = |last: &u8| SocketAddr::from(([10, 244, 0, *last], 80));
        Seen::Answers(last.iter().map(address).collect())
    };
    let failed = |errno: &str| Seen::Failed(errno.to_owned());
    let served = line("pod TCP 10.96.0.1:80 -> 10.244.0.1:80");
    let unknown = line("pod TCP 10.244.0.9:80 -> untouched");
    let own = line("node TCP 127.0.0.1:80 -> untouched");
    for (state, probe, seen, allowed) in [
        (state(&[1, 2]), &served, answers(&[1, 2]), true),
        (state(&[1, 2]), &served, answers(&[1]), true),
        (state(&[1, 2]), &served, answers(&[1, 3]), false),
        (state(&[1, 2]), &served, answers(&[]), false),
        (state(&[1, 2]), &served, failed("ECONNREFUSED"), false),
        (state(&[]), &served, failed("ECONNREFUSED"), true),
        (state(&[]), &served, failed("EHOSTUNREACH"), false),
        (state(&[]), &unknown, answers(&[9]), true),
        (state(&[]), &unknown, answers(&[1]), false),
        (state(&[]), &unknown, failed("ENETUNREACH"), true),
        // The node is there, and refuses what nobody serves.
        (state(&[]), &unknown, failed("ECONNREFUSED"), false),
        (state(&[]), &own, failed("ECONNREFUSED"), true),
        (state(&[]), &own, failed("ENETUNREACH"), false),
    ] {
        let judged = Judge::default().observation(&state, probe, &seen);
        assert_eq!(judged.is_ok(), allowed, "{probe}: {seen}");
    }
}
