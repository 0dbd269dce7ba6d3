//! The oracle against kube-proxy itself: the nftables rules that kube-proxy 1.36 made for a real
//! cluster, and the node-local state of the same objects, must do the same with every packet. Its iptables rules
//! are held against ours in [`iptables`].
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod iptables;

use std::{collections::BTreeMap, fs, net::IpAddr};

use proxy_agent::cluster::manifests::load_once;
use proxy_model::{
    ClusterEvent, NodePortSelection, NodeState, Protocol, ServiceCidr, Settings, compute,
    oracle::{Detector, Packet, Path, verdict},
};
use proxy_tests::{nft::Ruleset, scenario::packets::Fate, traced::Traced as _};
use serde_json::{Value, json};

macro_rules! data {
    ($name:literal) => {
        include_str!(concat!("../data/", $name))
    };
}

const RULES: &str = data!("kube-proxy-nftables-node-a.txt");
const CHANGES: [(&str, &str); 2] = [
    ("Service", data!("api-server/api-services-watch.ndjson")),
    (
        "EndpointSlice",
        data!("api-server/api-endpointslices-watch.ndjson"),
    ),
];
/// The node's addresses, as its Node object has them.
const NODE: [&str; 2] = ["192.0.2.11", "2001:db8::11"];

fn key(object: &Value) -> String {
    let name = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{} {} {}", object["kind"], name("namespace"), name("name"))
}

/// The objects that kube-proxy had when its rules were captured: those of `cluster-mixed`, after
/// the changes that the transcripts of the API server show.
fn objects() -> Value {
    let list: Value = serde_json::from_str(data!("cluster-mixed.json")).unwrap();
    let items = list["items"].as_array().unwrap().iter();
    let mut objects: BTreeMap<_, _> = items.map(|item| (key(item), item.clone())).collect();
    for (kind, changes) in CHANGES {
        for line in changes.lines() {
            let mut event: Value = serde_json::from_str(line).unwrap();
            let object = &mut event["object"];
            object["kind"] = kind.into();
            match event["type"].as_str().unwrap() {
                "BOOKMARK" => {}
                "DELETED" => drop(objects.remove(&key(&event["object"]))),
                _ => drop(objects.insert(key(&event["object"]), event["object"].clone())),
            }
        }
    }
    json!({"apiVersion": "v1", "kind": "List", "items": objects.into_values().collect::<Vec<_>>()})
}

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// The state on node-a, with kube-proxy's configuration.
fn state() -> NodeState {
    state_with(NodePortSelection::Primary)
}

fn state_with(node_ports: NodePortSelection) -> NodeState {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("cluster.json"), objects().to_string()).unwrap();
    let cidrs = |texts: [&str; 2]| texts.map(|text| text.parse().unwrap()).into();
    let mut settings = Settings::from("node-a");
    settings.traffic.detector = Detector::ClusterCidr(cidrs(["10.244.0.0/16", "fd00:10:244::/56"]));
    settings.node_ports = node_ports;
    let mut events = load_once(vec![dir.path().to_owned()]).unwrap();
    events.push(ClusterEvent::HostAddresses(addresses(&NODE)));
    events.push(ClusterEvent::ServiceCidrUpserted(ServiceCidr {
        name: "kubernetes".into(),
        cidrs: cidrs(["10.96.0.0/16", "fd00:10:96::/112"]),
    }));
    compute(settings, events)
}

/// Compares every destination of the rules in the family of `node`, and `strays`, from each of
/// `sources`; the number of packets that were compared.
fn compare(node: &str, sources: &[&str], strays: &[&str]) -> usize {
    let state = state();
    let node: IpAddr = node.parse().unwrap();
    let mut rules = Ruleset::parse(RULES).unwrap();
    // kube-proxy ran on a host without that address, so its set was empty.
    rules.insert("nodeport-ips", node).unwrap();
    let mut destinations = rules.destinations(node).unwrap();
    for stray in strays {
        destinations.insert((stray.parse().unwrap(), Protocol::Tcp));
    }
    let is_own = |address| state.node.is_host(address);
    let mut compared = 0;
    for (destination, protocol) in destinations {
        for source in addresses(sources) {
            let packet = Packet {
                source,
                destination,
                protocol,
                interface: None,
            };
            let by_kube_proxy = rules.fate(&packet, &is_own).unwrap();
            let by_oracle = Fate::from(&verdict(&state, &packet, Path::Packet));
            assert_eq!(
                by_oracle, by_kube_proxy,
                "{source} -> {destination}/{protocol}: the oracle (left) and kube-proxy (right)"
            );
            compared += 1;
        }
    }
    compared
}

#[test]
fn the_oracle_does_what_kube_proxy_does_with_ipv4() {
    let sources = [
        "10.244.0.9",
        "10.244.1.9",
        // Endpoints that dial their own Services, and others. Those of this node only: of another
        // node's, packets to themselves are masqueraded here and by the iptables mode, not by
        // the nftables mode.
        "10.244.0.10",
        "10.244.0.50",
        "10.244.0.61",
        "10.244.0.30",
        // The node itself, another one, who may and who may not dial the load balancer's address.
        NODE[0],
        "192.0.2.12",
        "203.0.113.9",
        "198.18.0.1",
    ];
    let strays = [
        "10.96.0.10:54",
        "10.96.10.1:80",
        "10.96.10.12:80",
        "10.96.99.99:80",
        "10.244.0.10:8080",
        "198.51.100.7:81",
        "198.51.100.8:80",
        "192.0.2.11:30079",
        "192.0.2.12:30080",
        "8.8.8.8:53",
    ];
    assert!(compare(NODE[0], &sources, &strays) > 300);
}

#[test]
fn the_oracle_does_what_kube_proxy_does_with_ipv6() {
    let sources = [
        "fd00:10:244::9",
        "fd00:10:244::10",
        "2001:db8:9::9",
        NODE[1],
    ];
    let strays = [
        "[fd00:10:96::a]:54",
        "[fd00:10:96::1001]:80",
        "[fd00:10:96::9999]:80",
        "[2001:db8::11]:30080",
        "[2001:db8::12]:30080",
    ];
    assert!(compare(NODE[1], &sources, &strays) > 30);
}
