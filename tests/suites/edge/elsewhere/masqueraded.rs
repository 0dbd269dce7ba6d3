//! A pod whose packets somebody else masquerades, from the very port that an endpoint elsewhere sees in the
//! place of a client: there is no socket to be found, and each hears its own answers.

use std::net::SocketAddr;

use proxy_tests::{
    Prober,
    pod::{Attempt, Transport},
};

use super::{
    super::rig::{DNS, HTTP, on_node, prober},
    Site, both_served,
};

/// What others make of a pod's port.
const PORT: u16 = 40_000;

/// Masquerades what the pod sends to the endpoint.
fn masquerades(site: &Site) {
    let [source, _] = site.other.node;
    let [pod, _] = site.shop.client.addresses() else {
        panic!("a pod has two addresses");
    };
    on_node(&site.shop, "nft", &["add table ip pods"]);
    let chain = "add chain ip pods leaving { type nat hook postrouting priority 90; }";
    on_node(&site.shop, "nft", &[chain]);
    for protocol in ["tcp dport 8080", "udp dport 5353"] {
        let rule =
            format!("add rule ip pods leaving ip saddr {pod} {protocol} snat to {source}:{PORT}");
        on_node(&site.shop, "nft", &[&rule]);
    }
}

/// One answer on a connection that stays, and whom the endpoint saw.
fn ask(prober: &mut Prober, transport: Transport, to: SocketAddr) -> SocketAddr {
    let name = transport.to_string();
    let attempts: Vec<Attempt> = prober.send_on(&name, transport, to, 3).unwrap();
    let last = attempts.last().unwrap();
    last.answer_as(to)
        .unwrap_or_else(|error| panic!("{to}: {error}"));
    last.client.unwrap()
}

#[test]
fn what_others_masquerade_and_a_client_seen_at_the_same_port_hear_their_own_answers() {
    let Some(site) = Site::build() else {
        return;
    };
    masquerades(&site);
    let mut agent = site.serve(&["--source-ports=40000-40000"]);
    let source = SocketAddr::new(site.other.node[0], PORT);
    let mut pod = Prober::start(&site.shop.client).unwrap();
    let mut client = prober(&site.client);
    let [http, dns] = [8080, 5353].map(|port| SocketAddr::new(site.other.addresses[0], port));
    let [to_http, to_dns] = [HTTP, DNS].map(|port| SocketAddr::new(site.client.node[0], port));
    for to in [(Transport::Tcp, http), (Transport::Udp, dns)] {
        assert_eq!(ask(&mut pod, to.0, to.1), source);
    }

    // Of TCP, the endpoint tells that it has a connection from there.
    assert_ne!(ask(&mut client, Transport::Tcp, to_http), source);
    assert_eq!(ask(&mut client, Transport::Udp, to_dns), source);
    // There are others now.
    agent.terminate().unwrap();
    let arguments = &mut agent.options().arguments;
    arguments.retain(|one| !one.starts_with("--source-ports"));
    agent.launch().unwrap();
    both_served(&mut agent);
    for _ in 0..2 {
        assert_eq!(ask(&mut pod, Transport::Tcp, http), source);
        let moved = ask(&mut pod, Transport::Udp, dns);
        assert_eq!(moved.ip(), source.ip());
        assert_ne!(moved, source);
        assert_ne!(ask(&mut client, Transport::Tcp, to_http), source);
        assert_eq!(ask(&mut client, Transport::Udp, to_dns), source);
    }
}
