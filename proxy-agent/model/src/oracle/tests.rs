//! The contract as a table: one cluster, many packets.

mod external;
mod layered;
mod node_ports;
mod outside;
mod refusals;

use std::{net::IpAddr, sync::Arc};

use super::*;
use crate::{
    ClusterEvent, Conditions, EndpointSlice, IpFamily, Node, Service, ServiceCidr, ServiceName,
    ServicePort, SliceEndpoint, SliceName, SlicePort, compute,
};

/// What may come of a packet, in one line: `forward 10.0.0.1:8080 10.0.1.1:8080+hairpin`.
fn told(verdict: &Verdict) -> String {
    let target = |target: &Target| {
        let why = match target.masquerade {
            None => "",
            Some(Masquerade::All) => "+all",
            Some(Masquerade::NotLocal) => "+foreign",
            Some(Masquerade::Hairpin) => "+hairpin",
            Some(Masquerade::External) => "+external",
            Some(Masquerade::Host) => "+host",
        };
        format!(" {}{why}", target.address)
    };
    let targets: String = verdict.targets.iter().map(target).collect();
    format!("{}{targets}", verdict.outcome)
}

/// The Service `shop/{name}` with endpoints (address, node), all ready.
fn service(
    name: &str,
    address: &str,
    ports: &[(Protocol, u16)],
    policy: TrafficPolicy,
    endpoints: &[(&str, &str)],
) -> [ClusterEvent; 2] {
    let address: IpAddr = address.parse().unwrap();
    let port_name = |protocol: Protocol, port: u16| -> Arc<str> {
        format!("{protocol}-{port}").to_lowercase().into()
    };
    let service = Service {
        name: ServiceName::new("shop", name),
        cluster_ips: vec![address],
        ports: ports
            .iter()
            .map(|&(protocol, port)| ServicePort {
                name: port_name(protocol, port),
                protocol,
                port,
                node_port: None,
            })
            .collect(),
        internal_policy: policy,
        ..Service::default()
    };
    let slice = EndpointSlice {
        name: SliceName::new("shop", name),
        service: service.name.clone(),
        family: IpFamily::of(address),
        ports: ports
            .iter()
            .map(|&(protocol, port)| SlicePort {
                name: port_name(protocol, port),
                protocol,
                port: 8000 + port,
            })
            .collect(),
        endpoints: endpoints
            .iter()
            .map(|(address, node)| SliceEndpoint {
                address: address.parse().unwrap(),
                conditions: Conditions {
                    ready: true,
                    serving: true,
                    terminating: false,
                },
                node: Some((*node).into()),
                hints: None,
            })
            .collect(),
    };
    [
        ClusterEvent::ServiceUpserted(service),
        ClusterEvent::SliceUpserted(slice),
    ]
}

fn cluster() -> NodeState {
    use Protocol::{Sctp, Tcp, Udp};
    use TrafficPolicy::{Cluster, Local};
    let two = [("10.0.0.1", "here"), ("10.0.1.1", "there")];
    let there = [("10.0.1.2", "there")];
    let six = [("fd00::1", "here")];
    let node = Node {
        name: "here".into(),
        zone: None,
        pod_cidrs: vec!["10.0.0.0/24".parse().unwrap()],
        addresses: Vec::new(),
        eligible: true,
    };
    let cidrs = ServiceCidr {
        name: "kubernetes".into(),
        cidrs: ["10.96.0.0/16", "fd00:96::/112"]
            .map(|cidr| cidr.parse().unwrap())
            .into(),
    };
    let mut events = vec![
        ClusterEvent::NodeUpserted(node),
        ClusterEvent::ServiceCidrUpserted(cidrs),
    ];
    let tcp = [(Tcp, 80)];
    events.extend(service(
        "web",
        "10.96.0.1",
        &[(Tcp, 80), (Udp, 53)],
        Cluster,
        &two,
    ));
    events.extend(service("here", "10.96.0.2", &tcp, Local, &two));
    events.extend(service("there", "10.96.0.3", &tcp, Local, &there));
    events.extend(service("empty", "10.96.0.4", &tcp, Cluster, &[]));
    events.extend(service("nobody", "10.96.0.5", &tcp, Local, &[]));
    events.extend(service("six", "fd00:96::1", &tcp, Cluster, &six));
    events.extend(service("sctp", "10.96.0.6", &[(Sctp, 9)], Cluster, &two));
    compute("here", events)
}

fn packet(from: &str, to: &str) -> Packet {
    let (to, protocol) = to.split_once('/').unwrap();
    let protocol = match protocol {
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        _ => Protocol::Tcp,
    };
    Packet {
        source: from.parse().unwrap(),
        destination: to.parse().unwrap(),
        protocol,
        interface: None,
    }
}

/// A pod of this node that is no endpoint.
const POD: &str = "10.0.0.9";

#[test]
fn what_becomes_of_each_destination() {
    let state = cluster();
    let both = "forward 10.0.0.1:8080 10.0.1.1:8080";
    for (to, on_packets, on_sockets) in [
        ("10.96.0.1:80/tcp", both, both),
        ("[::ffff:10.96.0.1]:80/tcp", both, both),
        (
            "10.96.0.1:53/udp",
            "forward 10.0.0.1:8053 10.0.1.1:8053",
            "forward 10.0.0.1:8053 10.0.1.1:8053",
        ),
        (
            "10.96.0.2:80/tcp",
            "forward 10.0.0.1:8080",
            "forward 10.0.0.1:8080",
        ),
        ("10.96.0.3:80/tcp", "drop", "drop"),
        ("10.96.0.4:80/tcp", "reject", "reject"),
        ("10.96.0.5:80/tcp", "reject", "reject"),
        (
            "[fd00:96::1]:80/tcp",
            "forward [fd00::1]:8080",
            "forward [fd00::1]:8080",
        ),
        // The port of another protocol, a port of nobody, a protocol of nobody.
        ("10.96.0.1:80/udp", "reject", "pass"),
        ("10.96.0.1:81/tcp", "reject", "pass"),
        ("10.96.0.1:80/sctp", "reject", "pass"),
        ("10.96.0.4:81/tcp", "reject", "pass"),
        ("10.96.0.77:80/tcp", "drop", "pass"),
        ("[fd00:96::77]:80/tcp", "drop", "pass"),
        ("10.0.0.1:8080/tcp", "pass", "pass"),
        ("192.0.2.1:80/tcp", "pass", "pass"),
        (
            "10.96.0.6:9/sctp",
            "forward 10.0.0.1:8009 10.0.1.1:8009",
            "pass",
        ),
    ] {
        let ask = |path| told(&verdict(&state, &packet(POD, to), path));
        assert_eq!(ask(Path::Packet), on_packets, "packet to {to}");
        assert_eq!(ask(Path::Socket), on_sockets, "socket to {to}");
    }
}

#[test]
fn each_verdict_names_its_rule() {
    let state = cluster();
    for (to, service, reason) in [
        (
            "10.96.0.1:80/tcp",
            Some("shop/web:tcp-80/TCP/IPv4"),
            Reason::ClusterSet,
        ),
        (
            "10.96.0.2:80/tcp",
            Some("shop/here:tcp-80/TCP/IPv4"),
            Reason::LocalSet,
        ),
        (
            "10.96.0.3:80/tcp",
            Some("shop/there:tcp-80/TCP/IPv4"),
            Reason::NoneByPolicy,
        ),
        (
            "10.96.0.5:80/tcp",
            Some("shop/nobody:tcp-80/TCP/IPv4"),
            Reason::NoEndpoints,
        ),
        ("10.96.0.1:81/tcp", None, Reason::UnknownPort),
        ("10.96.0.77:80/tcp", None, Reason::Unallocated),
        ("192.0.2.1:80/tcp", None, Reason::NoFrontend),
    ] {
        let verdict = verdict(&state, &packet(POD, to), Path::Packet);
        let named = verdict.service.map(|key| key.to_string());
        assert_eq!(named.as_deref(), service, "{to}");
        assert_eq!(verdict.reason, reason, "{to}");
        assert_eq!(verdict.frontend.is_some(), service.is_some(), "{to}");
    }
}

#[test]
fn without_ranges_only_live_addresses_are_ours() {
    let mut state = cluster();
    state.service_cidrs = Arc::default();
    let ask = |to| told(&verdict(&state, &packet(POD, to), Path::Packet));
    assert_eq!(ask("10.96.0.77:80/tcp"), "pass");
    assert_eq!(ask("10.96.0.1:81/tcp"), "reject");
}

#[test]
fn who_is_masqueraded_towards_a_cluster_ip() {
    struct Case {
        from: &'static str,
        interface: Option<&'static str>,
        detector: Detector,
        expected: &'static str,
    }
    let state = cluster();
    let plain = "forward 10.0.0.1:8080 10.0.1.1:8080";
    let foreign = "forward 10.0.0.1:8080+foreign 10.0.1.1:8080+foreign";
    let hairpin = "forward 10.0.0.1:8080+hairpin 10.0.1.1:8080";
    let cidrs = |cidrs: &[&str]| {
        Detector::ClusterCidr(cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect())
    };
    let case = |from, detector, expected| Case {
        from,
        interface: None,
        detector,
        expected,
    };
    let on = |interface, detector, expected| Case {
        from: POD,
        interface: Some(interface),
        detector,
        expected,
    };
    let bridge = || Detector::BridgeInterface("cbr0".into());
    let prefix = || Detector::InterfaceNamePrefix("veth".into());
    for Case {
        from,
        interface,
        detector,
        expected,
    } in [
        case(POD, Detector::None, plain),
        case("192.0.2.1", Detector::None, plain),
        case("10.0.0.1", Detector::None, hairpin),
        case(POD, cidrs(&["10.0.0.0/16"]), plain),
        case("10.0.1.9", cidrs(&["10.0.0.0/16"]), plain),
        case("192.0.2.1", cidrs(&["10.0.0.0/16"]), foreign),
        case("192.0.2.1", cidrs(&["fd00::/64", "10.0.0.0/16"]), foreign),
        case("10.0.0.1", cidrs(&["10.0.0.0/16"]), hairpin),
        // No range of the family: nothing can be told.
        case("192.0.2.1", cidrs(&["fd00::/64"]), plain),
        case(POD, Detector::NodeCidr, plain),
        case("10.0.1.9", Detector::NodeCidr, foreign),
        case("10.0.0.1", Detector::NodeCidr, hairpin),
        on("cbr0", bridge(), plain),
        on("cbr01", bridge(), foreign),
        on("eth0", bridge(), foreign),
        on("veth12", prefix(), plain),
        on("eth0", prefix(), foreign),
        // What the node itself sends arrives on no interface.
        case(POD, bridge(), foreign),
        case(POD, prefix(), foreign),
    ] {
        let mut packet = packet(from, "10.96.0.1:80/tcp");
        packet.interface = interface.map(Into::into);
        let said = format!("from {from} on {interface:?} by {detector:?}");
        let mut state = state.clone();
        state.traffic = Traffic {
            detector,
            masquerade_all: false,
        };
        let ask = |state: &NodeState, path| told(&verdict(state, &packet, path));
        assert_eq!(ask(&state, Path::Packet), expected, "{said}");
        assert_eq!(ask(&state, Path::Socket), plain, "{said}, socket");
        state.traffic.masquerade_all = true;
        let all = "forward 10.0.0.1:8080+all 10.0.1.1:8080+all";
        assert_eq!(ask(&state, Path::Packet), all, "{said}, all");
        assert_eq!(ask(&state, Path::Socket), plain, "{said}, all, socket");
    }
}

#[test]
fn without_a_node_object_no_source_is_foreign_to_it() {
    let mut state = cluster();
    state.node.object = None;
    state.traffic = Traffic {
        detector: Detector::NodeCidr,
        masquerade_all: false,
    };
    let packet = packet("192.0.2.1", "10.96.0.2:80/tcp");
    let told = told(&verdict(&state, &packet, Path::Packet));
    assert_eq!(told, "forward 10.0.0.1:8080");
}
