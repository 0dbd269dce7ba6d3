//! What each backend does not do of a packet, and paths that do not meet it.

use super::*;

#[test]
fn what_a_backend_does_not_do_of_a_packet_is_told_although_no_service_asks_for_it() {
    let none = Traffic::default();
    let model = model(&none);
    let ebpf = choice::fixtures::lacking(proxy_backend_ebpf::LACKS);
    let nftables = Choice {
        layers: vec!["nftables"],
        ..choice::fixtures::lacking(proxy_backend_nftables::LACKS)
    };
    let (packet_path, socket) = (Path::Packet, Path::Socket);
    for (from, to, path, backend, expected) in [
        (
            "203.0.113.9",
            "10.96.0.1:80/tcp",
            packet_path,
            &ebpf,
            "foreign-clients",
        ),
        ("192.0.2.1", "10.96.0.1:80/tcp", packet_path, &ebpf, ""),
        (
            "192.0.2.1",
            "10.96.0.1:81/tcp",
            packet_path,
            &ebpf,
            "stray-traffic",
        ),
        (
            "192.0.2.1",
            "10.96.0.77:80/tcp",
            packet_path,
            &ebpf,
            "stray-traffic",
        ),
        (
            "192.0.2.1",
            "192.0.2.1:30080/tcp",
            packet_path,
            &ebpf,
            "masquerade",
        ),
        ("127.0.0.1", "127.0.0.1:30080/tcp", socket, &ebpf, ""),
        (
            "127.0.0.1",
            "127.0.0.1:30080/tcp",
            socket,
            &nftables,
            "loopback-node-ports",
        ),
        (
            "127.0.0.1",
            "0.0.0.0:30080/tcp",
            socket,
            &nftables,
            "loopback-node-ports",
        ),
        ("127.0.0.1", "192.0.2.1:30080/tcp", socket, &nftables, ""),
        (
            "203.0.113.9",
            "192.0.2.1:30080/tcp",
            packet_path,
            &nftables,
            "",
        ),
    ] {
        let packet = packet(from, to, None).unwrap();
        let told = explain_served(&model, &packet, path, &backend.clone().into());
        let rest = told
            .story
            .split_once("\nWhat ")
            .map_or("", |(_, rest)| rest);
        let lines = rest.lines().filter_map(|line| line.strip_prefix("  "));
        let names: Vec<_> = lines.map(|line| line.split(':').next().unwrap()).collect();
        assert_eq!(names.join(" "), expected, "{from} to {to}");
    }
}

#[test]
fn a_protocol_that_sockets_do_not_meet_is_not_told_against_itself() {
    let mut events = service("signals", "10.96.0.9", "", TrafficPolicy::Cluster, &[]);
    let ClusterEvent::ServiceUpserted(service) = &mut events[0] else {
        panic!("a Service comes first")
    };
    service.ports[0].protocol = Protocol::Sctp;
    service.ports[0].node_port = NonZeroU16::new(30090);
    let model = Model::after(
        settings(&Traffic::default()),
        cluster().into_iter().chain(events),
    );
    let told = |to| {
        let packet = packet("192.0.2.1", to, None).unwrap();
        explain(&model, &packet, Path::Socket).story
    };
    for (to, part) in [
        (
            "10.96.0.9:80/sctp",
            "shop/signals is served there, but only for packets:",
        ),
        (
            "192.0.2.1:30090/sctp",
            "shop/signals is served there, but only for packets:",
        ),
        (
            "127.0.0.1:30090/sctp",
            "127.0.0.1: sockets that use SCTP are not intercepted.",
        ),
        ("10.96.0.9:80/tcp", "is served there for SCTP, not for TCP."),
    ] {
        let story = told(to);
        assert!(story.contains(part), "{to}\n{story}");
        assert!(!story.contains("for SCTP, not for SCTP"), "{story}");
    }
}
