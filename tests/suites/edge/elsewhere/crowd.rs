//! Flows of all kinds at once to one endpoint, from the same few ports: of clients outside, of sockets of the
//! node, and of a pod that somebody else masquerades. None is answered by the wrong one.
//!
//! `CULVERT_FLOWS` is how many of each kind at least: a thousand without it.

use std::{env, net::SocketAddr, time::Duration};

use proxy_tests::{
    Prober,
    netns::NetNs,
    pod::{Load, Transport},
};

use super::{
    super::rig::{DNS, HTTP, on_node},
    Site,
};

/// From which all are sent, as the endpoint sees it.
const PORTS: [u16; 2] = [40_000, 41_999];

/// Between two flows of one kind: a port of TCP that was closed may be used again after a second.
const PAUSE: Duration = Duration::from_millis(1);

/// Flows of each kind.
fn count() -> u64 {
    let given = env::var("CULVERT_FLOWS");
    given.map_or(1_000, |text| text.parse().unwrap())
}

/// What is sent from there has one of these ports.
fn narrow(netns: &NetNs, ports: [u16; 2]) {
    netns.sends_from(ports).unwrap();
    netns.sysctls(&[("ipv4/tcp_tw_reuse", "1")]).unwrap();
}

#[test]
fn flows_of_clients_of_sockets_and_of_what_others_masquerade_hear_their_own_answers() {
    let Some(site) = Site::build() else {
        return;
    };
    let [pod, _] = site.shop.client.addresses() else {
        panic!("a pod has two addresses");
    };
    on_node(&site.shop, "nft", &["add table ip pods"]);
    let chain = "add chain ip pods leaving { type nat hook postrouting priority 90; }";
    on_node(&site.shop, "nft", &[chain]);
    let rule = format!("add rule ip pods leaving ip saddr {pod} oifname ext2 masquerade");
    on_node(&site.shop, "nft", &[&rule]);
    let node = site.shop.world.node();
    narrow(site.client.host.netns(), [1024, 65_535]);
    narrow(node.netns(), PORTS);
    narrow(site.shop.client.netns(), PORTS);
    let [first, last] = PORTS;
    let _agent = site.serve(&[&format!("--source-ports={first}-{last}")]);

    let [http, dns] = [8080, 5353].map(|port| SocketAddr::new(site.other.addresses[0], port));
    let [to_http, to_dns] = [HTTP, DNS].map(|port| SocketAddr::new(site.client.node[0], port));
    // Of UDP, a flow that somebody masquerades is not seen before it sends again.
    let kinds = [
        (&site.client.host, Transport::Tcp, to_http),
        (&site.client.host, Transport::Udp, to_dns),
        (node, Transport::Tcp, http),
        (node, Transport::Udp, dns),
        (&site.shop.client, Transport::Tcp, http),
    ];
    let mut probers = Vec::new();
    for (host, transport, to) in kinds {
        let mut prober = Prober::start(host).unwrap();
        prober
            .load_start(Load {
                name: "all".to_owned(),
                transport,
                to,
                threads: 1,
                pause: PAUSE,
                keep: false,
            })
            .unwrap();
        probers.push((prober, host.name(), transport));
    }
    for (prober, ..) in &mut probers {
        prober.load_wait("all", count()).unwrap();
    }
    let mut reports = Vec::new();
    for (prober, from, transport) in &mut probers {
        let report = prober.load_stop("all").unwrap();
        println!("{from} {transport}: {report:?}");
        reports.push(report);
    }
    assert!(reports.iter().all(|report| report.failures.is_empty()));
}
