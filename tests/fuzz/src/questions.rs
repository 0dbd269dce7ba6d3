//! All that people and backends may want to know of a state. No answer may be a panic.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use proxy_agent::{
    backends,
    report::{
        self,
        explain::{self, Known},
    },
};
use proxy_backend::Settings;
use proxy_model::{
    NodeState, Protocol,
    oracle::{Outcome, Packet, Path, verdict},
};

/// How many frontends of a state are asked about.
const FRONTENDS: usize = 16;

/// Prints the state in every form, and explains what becomes of `packets`.
///
/// # Panics
///
/// If a verdict contradicts itself or the state, or anything is broken.
pub(crate) fn ask(known: Known<'_>, packets: Vec<Packet>) {
    let state = known.state();
    report::to_json(state);
    report::to_text(state);
    for kind in backends::ALL {
        kind.render(state, &Settings::default(), true);
    }
    for packet in packets {
        for path in [Path::Packet, Path::Socket] {
            judge(state, &packet.canonical(), path);
            explain::explain(known, &packet, path).to_json();
        }
    }
}

/// Packets to frontends of `state`, and to an address that is nobody's.
pub(crate) fn to_frontends(state: &NodeState) -> Vec<Packet> {
    let nowhere = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 77).into(), 9);
    let mut destinations = vec![(nowhere, Protocol::Tcp)];
    let frontends = state.services.iter().flat_map(|(key, service)| {
        service
            .frontends
            .iter()
            .map(move |frontend| (key, *frontend))
    });
    for (key, frontend) in frontends.take(FRONTENDS) {
        let own = state.node_port_addresses.first().copied();
        if let Some(address) = frontend.address.or(own) {
            destinations.push((SocketAddr::new(address, frontend.port), key.protocol));
        }
    }
    let packet = |(destination, protocol): (SocketAddr, Protocol), source: IpAddr| Packet {
        source,
        destination,
        protocol,
        interface: None,
    };
    let mut packets = Vec::new();
    for to in destinations {
        let own = state.node.host_addresses.first().copied();
        let sources = [Some(Ipv4Addr::LOCALHOST.into()), Some(to.0.ip()), own];
        packets.extend(sources.into_iter().flatten().map(|from| packet(to, from)));
    }
    packets
}

fn judge(state: &NodeState, packet: &Packet, path: Path) {
    let verdict = verdict(state, packet, path);
    let forwards = verdict.outcome == Outcome::Forward;
    let said = || format!("{packet:?}: {verdict:?}");
    assert_eq!(forwards, !verdict.targets.is_empty(), "{}", said());
    let Some(key) = &verdict.service else {
        assert!(!forwards, "{}", said());
        return;
    };
    let service = &state.services[key];
    let frontend = verdict
        .frontend
        .expect("a Service is dialled at a frontend");
    assert!(service.frontends.contains(&frontend), "{}", said());
    assert_eq!(key.protocol, packet.protocol, "{}", said());
}
