//! Somebody starts a firewall that goes by DNAT while clients are served: open connections go on, new
//! ones are the layer beneath's, and when the last has ended the programs leave the device. When the
//! firewall stops, they come back.

use std::net::SocketAddr;

use proxy_tests::{Agent, Shop, agent::LogLine, pod::Transport};

use crate::edge::rig::{FILE, HTTP, Site, can_run, cluster, on_node, options, prober, served};
use crate::layers::tracked::{Flow, flows};

const FIREWALL: [&str; 3] = [
    "add table inet fw",
    "add chain inet fw forward { type filter hook forward priority 10; }",
    "add rule inet fw forward ct status dnat accept",
];

fn nft(shop: &Shop, command: &str) {
    on_node(shop, "nft", &[command]);
}

/// Waits until this is said about the device.
fn told(agent: &mut Agent<'_>, message: &str, choice: &str) {
    let is_it = |line: &LogLine| {
        let said = line
            .text("choice")
            .is_some_and(|said| said.contains(choice));
        line.message() == Some(message) && line.text("device") == Some("ext1") && said
    };
    agent.wait_for_line(choice, is_it).unwrap();
}

#[test]
fn a_firewall_that_goes_by_dnat_gets_its_device_and_open_connections_go_on() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[1]);
    let (shop, neighbour) = (&site.shop, &site.neighbour);
    let to = SocketAddr::new(neighbour.node[0], HTTP);
    let ask = |prober: &mut proxy_tests::Prober, name: &str| {
        for attempt in prober.send_on(name, Transport::Tcp, to, 2).unwrap() {
            attempt
                .answer_as(to)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    };
    let is_translated = |flow: &Flow| flow.original[1] == to;
    let mut keeps = prober(neighbour);
    ask(&mut keeps, "kept");
    assert!(!flows(&shop.world).iter().any(is_translated));

    for one in FIREWALL {
        nft(shop, one);
    }
    told(
        &mut agent,
        "device served",
        "until its connections end, because table inet fw, chain forward goes by",
    );
    ask(&mut keeps, "kept");
    assert!(!flows(&shop.world).iter().any(is_translated));
    ask(&mut prober(neighbour), "new");
    assert!(flows(&shop.world).iter().any(is_translated));

    nft(shop, "delete table inet fw");
    told(&mut agent, "device served", "carries");
    ask(&mut keeps, "kept");
    let translated = flows(&shop.world)
        .iter()
        .filter(|flow| is_translated(flow))
        .count();
    ask(&mut prober(neighbour), "newer");
    let after = flows(&shop.world)
        .iter()
        .filter(|flow| is_translated(flow))
        .count();
    assert!(after <= translated, "{after} > {translated}");
}

#[test]
fn a_device_that_a_rule_is_about_is_left_alone_from_the_start() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let neighbour = shop.world.neighbour(1).unwrap();
    let other = shop.world.neighbour(2).unwrap();
    for one in [
        "add table inet fw",
        "add chain inet fw pre { type filter hook prerouting priority -300; }",
        "add rule inet fw pre iifname ext1 tcp dport 1 drop",
    ] {
        nft(&shop, one);
    }
    let objects = cluster(&neighbour, &[1]);
    let named = options(&["--devices=ext*"]);
    let mut agent = Agent::start(&shop.world, named, &[(FILE, &*objects)]).unwrap();
    served(&mut agent, "ext2");
    let to = SocketAddr::new(neighbour.node[0], HTTP);
    for from in [&neighbour, &other] {
        for attempt in prober(from).send(Transport::Tcp, to, 5).unwrap() {
            attempt
                .answer_as(to)
                .unwrap_or_else(|error| panic!("{to}: {error}"));
        }
    }
    let [of_first, of_other] = [&neighbour, &other].map(|from| {
        let all = flows(&shop.world).into_iter();
        let mut from_there = all.filter(|flow| flow.original[0].ip() == from.addresses[0]);
        from_there.any(|flow| flow.original[1] == to)
    });
    assert!(of_first, "netfilter translates");
    assert!(!of_other, "programs do");
    nft(&shop, "delete table inet fw");
    served(&mut agent, "ext1");
}
