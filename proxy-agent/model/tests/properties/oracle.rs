//! The oracle answers any question about any state, and its answers are borne out by the state.

use std::net::{IpAddr, SocketAddr};

use proptest::{
    prelude::*,
    sample::{Index, select},
};
use proxy_model::{
    Frontend, FrontendKind, IpFamily, NodeState, Protocol, ServicePortKey, ServiceState,
    TrafficPolicy, compute,
    oracle::{Masquerade, Outcome, Packet, Path, Reason, Verdict, verdict},
};

use crate::{take, walk};

/// Addresses of the walk's universe, and strangers.
fn address() -> impl Strategy<Value = IpAddr> {
    let known = select(
        &[
            "10.0.0.1",
            "10.0.0.2",
            "10.0.0.254",
            "10.96.0.1",
            "10.96.0.2",
            "10.96.0.99",
            "127.0.0.1",
            "127.0.0.53",
            "192.0.2.1",
            "198.51.100.1",
            "203.0.113.1",
            "203.0.113.2",
            "0.0.0.0",
            "::",
            "::1",
            "::ffff:10.96.0.1",
            "::ffff:203.0.113.1",
            "2001:db8::1",
            "2001:db8:1::1",
            "fd00::1",
            "fd00:96::1",
            "fd00:96::2",
            "fd00:96::99",
        ][..],
    );
    prop_oneof![
        12 => known.prop_map(|address| address.parse().unwrap()),
        1 => any::<IpAddr>(),
    ]
}

fn packet() -> impl Strategy<Value = Packet> {
    let port = prop_oneof![8 => select(&[53, 80, 30053, 30080][..]), 1 => any::<u16>()];
    let protocol = select(&[Protocol::Tcp, Protocol::Tcp, Protocol::Udp, Protocol::Sctp][..]);
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

/// A packet that some Service port is waiting for, where there is one: to one of the state's
/// frontends, from anywhere or from that very address.
fn welcome(state: &NodeState, mut packet: Packet, which: Index, from_itself: bool) -> Packet {
    let services = state.services.iter();
    let frontends: Vec<_> = services
        .flat_map(|(key, service)| {
            service
                .frontends
                .iter()
                .map(move |frontend| (key, frontend))
        })
        .collect();
    if !frontends.is_empty() {
        let (key, frontend) = which.get(&frontends);
        let mut own = state.node_port_addresses.iter();
        let own = own.find(|address| IpFamily::of(**address) == key.family);
        packet.protocol = key.protocol;
        packet.destination.set_port(frontend.port);
        if let Some(address) = frontend.address.or(own.copied()) {
            packet.destination.set_ip(address);
        }
    }
    if from_itself {
        packet.source = packet.destination.ip();
    }
    packet
}

/// The frontends that answer at the destination of a packet, exact addresses before NodePorts.
fn frontends<'a>(
    state: &'a NodeState,
    packet: &Packet,
    path: Path,
) -> Vec<(&'a ServicePortKey, &'a ServiceState, Frontend)> {
    let to = packet.destination;
    let mut found = Vec::new();
    for exact in [true, false] {
        for (key, service) in &state.services {
            for frontend in &service.frontends {
                let answers = match frontend.address {
                    Some(address) => exact && address == to.ip(),
                    None => !exact && has_node_ports(state, packet, path),
                };
                let fits = key.protocol == packet.protocol
                    && key.family == IpFamily::of(to.ip())
                    && frontend.port == to.port();
                if answers && fits {
                    found.push((key, &**service, *frontend));
                }
            }
        }
    }
    found
}

/// All loopback addresses are one to sockets of the node, and none to others and to packets.
fn has_node_ports(state: &NodeState, packet: &Packet, path: Path) -> bool {
    let address = packet.destination.ip();
    let is_node = packet.source.is_loopback() || state.node.host_addresses.contains(&packet.source);
    let own = |address: &str| {
        state
            .node_port_addresses
            .contains(&address.parse().unwrap())
    };
    let is_loopback = address.is_loopback() || address.is_unspecified();
    match (path, is_loopback) {
        (Path::Packet, true) => false,
        (Path::Socket, true) if !is_node => false,
        (Path::Socket, true) if address.is_ipv4() => own("127.0.0.1"),
        (Path::Socket, true) => own("::1"),
        (_, false) => state.node_port_addresses.contains(&address),
    }
}

/// Which set the rules lead to, and whether the source is replaced whatever the endpoint.
fn rule(
    state: &NodeState,
    packet: &Packet,
    path: Path,
    (service, frontend): (&ServiceState, Frontend),
) -> (TrafficPolicy, bool) {
    use TrafficPolicy::{Cluster, Local};

    let detected = state.traffic.detector.is_local(&state.node, packet);
    let is_host = packet.source.is_loopback() || state.node.host_addresses.contains(&packet.source);
    let (set, masquerade) = if frontend.kind == FrontendKind::ClusterIp {
        let foreign = detected == Some(false);
        (
            service.internal_policy,
            foreign || state.traffic.masquerade_all,
        )
    } else if service.external_policy == Cluster {
        (Cluster, true)
    } else if path == Path::Socket || detected == Some(true) {
        (Cluster, false)
    } else if is_host {
        (Cluster, true)
    } else {
        (Local, false)
    };
    (set, masquerade && path == Path::Packet)
}

/// Checks `verdict` against all that the state says.
fn check(state: &NodeState, packet: &Packet, path: Path, verdict: &Verdict) {
    let packet = &packet.canonical();
    let to = packet.destination.ip();
    let unseen = path == Path::Socket && packet.protocol == Protocol::Sctp;
    let waiting = frontends(state, packet, path);
    let Some(&(key, service, frontend)) = waiting.first().filter(|_| !unseen) else {
        assert_eq!((&verdict.service, verdict.frontend), (&None, None));
        assert!(verdict.targets.is_empty());
        let mut live = state.services.values().flat_map(|one| &one.frontends);
        let is_cluster_ip =
            live.any(|one| one.kind == FrontendKind::ClusterIp && one.address == Some(to));
        let is_reserved = state.service_cidrs.iter().any(|cidr| cidr.contains(&to));
        let expected = match path {
            Path::Packet if is_cluster_ip => Outcome::Reject,
            Path::Packet if is_reserved => Outcome::Drop,
            Path::Packet | Path::Socket => Outcome::Pass,
        };
        assert_eq!(verdict.outcome, expected);
        return;
    };
    assert_eq!(
        (verdict.service.as_ref(), verdict.frontend),
        (Some(key), Some(frontend))
    );
    // No two Services answer at one address: the model has decided.
    let exact: Vec<_> = waiting
        .iter()
        .filter(|one| one.2.address.is_some())
        .collect();
    assert!(
        exact.len() <= 1 && waiting.len() - exact.len() <= 1,
        "{waiting:?}"
    );

    let ranges = service.source_ranges.as_ref();
    if let Some(ranges) = ranges.filter(|_| frontend.kind == FrontendKind::LoadBalancerIp) {
        let may_come = ranges
            .ranges
            .iter()
            .any(|range| range.contains(&packet.source))
            || ranges.own_address && packet.source == to;
        let refused = match path {
            Path::Socket => Some((Outcome::Pass, Reason::PacketPathDecides)),
            Path::Packet if !may_come => Some((Outcome::Drop, Reason::SourceRange)),
            Path::Packet => None,
        };
        if let Some(refused) = refused {
            assert_eq!((verdict.outcome, verdict.reason), refused);
            assert!(verdict.targets.is_empty());
            return;
        }
    }
    let (set, masquerade) = rule(state, packet, path, (service, frontend));
    assert_eq!(verdict.set, Some(set));
    let endpoints = match set {
        TrafficPolicy::Cluster => &service.cluster_endpoints,
        TrafficPolicy::Local => &service.local_endpoints,
    };
    let endpoints = endpoints
        .as_deref()
        .expect("a set that a frontend uses is there");
    let targets = verdict.targets.iter().map(|target| target.address);
    assert!(targets.eq(endpoints.iter().map(|endpoint| endpoint.address)));
    for target in &verdict.targets {
        let hairpin = path == Path::Packet && target.address.ip() == packet.source;
        assert_eq!(target.masquerade.is_some(), masquerade || hairpin);
        assert!(target.masquerade != Some(Masquerade::Hairpin) || hairpin && !masquerade);
    }
    let expected = match (endpoints.is_empty(), service.has_any_endpoints) {
        (false, _) => Outcome::Forward,
        (true, true) => Outcome::Drop,
        (true, false) => Outcome::Reject,
    };
    assert_eq!(verdict.outcome, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn verdicts_are_borne_out_by_the_state(
        settings in walk::settings(),
        steps in walk::steps(40),
        packets in prop::collection::vec(packet(), 1..20),
        welcomed in prop::collection::vec(
            (packet(), any::<Index>(), prop::bool::weighted(0.2)),
            1..40,
        ),
    ) {
        let (_, events) = take(steps);
        let state = compute(settings, events);
        let welcomed = welcomed
            .into_iter()
            .map(|(packet, which, from_itself)| welcome(&state, packet, which, from_itself));
        for packet in packets.into_iter().chain(welcomed) {
            for path in [Path::Packet, Path::Socket] {
                let verdict = verdict(&state, &packet, path);
                check(&state, &packet, path, &verdict);
            }
        }
    }
}
