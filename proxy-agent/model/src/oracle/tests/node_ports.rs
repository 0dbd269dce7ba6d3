//! NodePorts: on which addresses, and what comes before them.

use std::num::NonZeroU16;

use super::{
    external::{state, web},
    *,
};
use crate::{ExternalAccess, NodePortSelection, Settings};

/// Node ports on loopback addresses are for sockets of this node; packets to them stay.
#[test]
fn loopback_node_ports_are_for_sockets() {
    let both = "forward 10.0.0.1:8080 10.0.1.1:8080";
    let six = "forward [fd00::1]:8080";
    let with = |localhost, node_ports: &[&str]| {
        let cidrs = node_ports
            .iter()
            .map(|cidr| cidr.parse().unwrap())
            .collect();
        let settings = Settings {
            localhost_node_ports: localhost,
            node_ports: match node_ports {
                [] => NodePortSelection::All,
                _ => NodePortSelection::Cidrs(cidrs),
            },
            ..Settings::from("here")
        };
        let ports = [(Protocol::Tcp, 80)];
        let endpoints = [("fd00::1", "here")];
        let cluster = TrafficPolicy::Cluster;
        let [mut dual, slice] = service("six", "fd00:96::1", &ports, cluster, &endpoints);
        if let ClusterEvent::ServiceUpserted(dual) = &mut dual {
            dual.ports[0].node_port = NonZeroU16::new(30080);
        }
        state(
            settings,
            web(cluster, cluster).into_iter().chain([dual, slice]),
        )
    };
    for (localhost, node_ports, to, expected) in [
        (true, &[][..], "127.0.0.1:30080", both),
        (true, &[], "127.0.0.53:30080", both),
        (true, &[], "0.0.0.0:30080", both),
        (true, &[], "[::ffff:127.0.0.1]:30080", both),
        (true, &[], "[::1]:30080", six),
        (true, &[], "[::]:30080", six),
        (true, &[], "192.0.2.1:30080", both),
        // Of NodePorts alone, and of their very number.
        (true, &[], "127.0.0.1:80", "pass"),
        (true, &[], "127.0.0.1:30081", "pass"),
        (false, &[], "127.0.0.1:30080", "pass"),
        (false, &[], "0.0.0.0:30080", "pass"),
        (false, &[], "[::1]:30080", "pass"),
        (false, &[], "192.0.2.1:30080", both),
        // Only where the selection holds them.
        (true, &["192.0.2.0/24"], "127.0.0.1:30080", "pass"),
        (true, &["127.0.0.0/8"], "127.0.0.1:30080", both),
        (true, &["127.0.0.0/8"], "192.0.2.1:30080", "pass"),
    ] {
        let state = with(localhost, node_ports);
        let packet = packet("127.0.0.1", &format!("{to}/tcp"));
        let said = format!("localhost {localhost}, {node_ports:?}: {to}");
        assert_eq!(
            told(&verdict(&state, &packet, Path::Socket)),
            expected,
            "{said}"
        );
        let by_packet = verdict(&state, &packet, Path::Packet);
        let is_node = to.starts_with("192.") && expected != "pass";
        let outcome = if is_node {
            Outcome::Forward
        } else {
            Outcome::Pass
        };
        assert_eq!(by_packet.outcome, outcome, "{said}, packet");
    }
}

#[test]
fn an_address_of_the_node_that_a_service_names_comes_before_node_ports() {
    let ports = [(Protocol::Tcp, 30080)];
    let endpoints = [("10.0.0.2", "here")];
    let cluster = TrafficPolicy::Cluster;
    let [mut named, slice] = service("named", "10.96.0.2", &ports, cluster, &endpoints);
    if let ClusterEvent::ServiceUpserted(named) = &mut named {
        named.external = Some(Box::new(ExternalAccess {
            ips: vec!["192.0.2.1".parse().unwrap()],
            ..ExternalAccess::default()
        }));
    }
    let events = web(cluster, cluster).into_iter().chain([named, slice]);
    let state = state(Settings::from("here"), events);
    let ask = |from, to| told(&verdict(&state, &packet(from, to), Path::Socket));
    let named = "forward 10.0.0.2:38080";
    assert_eq!(ask(POD, "192.0.2.1:30080/tcp"), named);
    let node_port = "forward 10.0.0.1:8080 10.0.1.1:8080";
    assert_eq!(ask("192.0.2.1", "127.0.0.1:30080/tcp"), node_port);
    // A pod's loopback addresses are its own.
    assert_eq!(ask(POD, "127.0.0.1:30080/tcp"), "pass");
    assert_eq!(ask(POD, "0.0.0.0:30080/tcp"), "pass");
}
