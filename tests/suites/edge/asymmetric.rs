//! Replies that leave by another device than requests come in by: the routes of pods are chosen by where packets come
//! from, or the way back to a client is another one.

use std::net::{IpAddr, SocketAddr};

use proxy_tests::{Agent, Shop, pod::Transport, world::Neighbour};
use serde_json::Value;

use super::{
    elsewhere,
    kept::{PODS, Site},
    rig::{FILE, all_served, on_node, options, prober},
};

/// The node's end of the other wire to the client, and the client's.
const WIRE: [[&str; 2]; 2] = [
    ["198.51.100.1", "198.51.100.2"],
    ["2001:db8:d::1", "2001:db8:d::2"],
];
/// What pods have their addresses from.
const RANGES: [&str; 2] = ["10.244.0.0/16", "fd00:10:244::/64"];

/// Another wire to the client. The way to its addresses by it is in table 100.
fn add_wire(shop: &Shop, client: &Neighbour) {
    let (node, host) = (shop.world.node().netns(), client.host.netns());
    let loose = ["all", "default"].map(|one| format!("ipv4/conf/{one}/rp_filter"));
    for netns in [node, host] {
        netns
            .sysctls(&loose.each_ref().map(|name| (&**name, "0")))
            .unwrap();
    }
    let link = "link add back type veth peer name eth1 netns ";
    node.ip(&format!("{link}{}\n", host.path())).unwrap();
    let addresses = |device: &str, end: usize| {
        let added = WIRE.map(|ends| {
            let (length, is_known) = if ends[end].contains(':') {
                (64, " nodad")
            } else {
                (24, "")
            };
            format!("addr add {}/{length} dev {device}{is_known}\n", ends[end])
        });
        format!("{}link set {device} up\n", added.concat())
    };
    host.ip(&addresses("eth1", 1)).unwrap();
    node.ip(&addresses("back", 0)).unwrap();
    for (ends, client) in WIRE.iter().zip(client.addresses) {
        let route = format!("route add {client} via {} dev back table 100\n", ends[1]);
        node.ip(&route).unwrap();
    }
}

fn add_rule(shop: &Shop, what: &[&str; 2]) {
    for (family, what) in ["-4", "-6"].into_iter().zip(what) {
        let rule = [family, "rule", "add", "from", what, "lookup", "100"];
        on_node(shop, "ip", &rule);
    }
}

/// How many packets left by the other wire.
fn sent_back(shop: &Shop) -> u64 {
    let told = on_node(shop, "ip", &["-s", "-j", "link", "show", "dev", "back"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    told[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
}

/// Each frontend answers, and each answer takes the other wire.
fn all_answer(shop: &Shop, client: &Neighbour, all: Vec<(Transport, SocketAddr)>) -> Vec<IpAddr> {
    let mut prober = prober(client);
    let mut seen = Vec::new();
    for (transport, to) in all {
        let before = sent_back(shop);
        for attempt in prober.send(transport, to, 5).unwrap() {
            attempt
                .answer_as(to)
                .unwrap_or_else(|error| panic!("{transport} {to}: {error}"));
            seen.push(attempt.client.unwrap().ip());
        }
        assert!(sent_back(shop) >= before + 5, "{transport} {to}");
    }
    seen
}

#[test]
fn pods_answer_by_the_device_that_their_own_routes_name() {
    for keeps in [true, false] {
        let Some(site) = Site::build() else {
            return;
        };
        add_wire(&site.shop, &site.neighbour);
        add_rule(&site.shop, &RANGES);
        let further = if keeps {
            vec![PODS, "--keep-client-address"]
        } else {
            vec![PODS]
        };
        let objects = site.objects(true);
        let files = [(FILE, &*objects)];
        let mut agent = Agent::start(&site.shop.world, options(&further), &files).unwrap();
        all_served(&mut agent, &["ext1", "back"]);
        let seen = all_answer(&site.shop, &site.neighbour, site.all());
        let clients = site.neighbour.addresses;
        assert!(
            seen.iter().all(|ip| clients.contains(ip) == keeps),
            "{seen:?}"
        );
    }
}

#[test]
fn endpoints_of_other_nodes_answer_by_another_way_to_the_client() {
    let Some(site) = elsewhere::Site::build() else {
        return;
    };
    add_wire(&site.shop, &site.client);
    let others = site.other.addresses.map(|ip| ip.to_string());
    add_rule(&site.shop, &others.each_ref().map(|ip| &**ip));
    let files = [(FILE, &*site.objects())];
    let mut agent = Agent::start(&site.shop.world, options(&[]), &files).unwrap();
    all_served(&mut agent, &["ext1", "ext2", "back"]);
    let seen = all_answer(&site.shop, &site.client, site.all());
    assert!(
        seen.iter().all(|ip| site.other.node.contains(ip)),
        "{seen:?}"
    );
}
