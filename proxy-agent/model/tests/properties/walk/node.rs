//! Random Nodes, hosts and settings, and ranges of ClusterIPs.

use std::{net::IpAddr, sync::Arc};

use proptest::{prelude::*, sample::select};
use proxy_model::{
    Node, NodePortSelection, ServiceCidr, Settings,
    oracle::{Detector, Traffic},
};

use super::{NODE, parsed};

/// Several addresses of each family, some of which the host has.
const NODE_ADDRESSES: &[&str] = &[
    "192.0.2.1",
    "192.0.2.2",
    "203.0.113.9",
    "2001:db8::1",
    "2001:db8::2",
];

pub fn name() -> impl Strategy<Value = Arc<str>> {
    prop_oneof![3 => Just(NODE), 1 => Just("node-b")].prop_map(Into::into)
}

pub fn zone() -> impl Strategy<Value = Option<Arc<str>>> {
    let zone = select(&["zone-a", "zone-b"][..]).prop_map(Into::into);
    prop::option::weighted(0.8, zone)
}

pub fn node() -> impl Strategy<Value = Node> {
    let pods = select(&["10.0.0.0/24", "10.0.1.0/24", "fd00::/64"][..]);
    (
        name(),
        zone(),
        prop::collection::vec(pods, 0..3),
        prop::collection::vec(select(NODE_ADDRESSES), 0..4),
        any::<bool>(),
    )
        .prop_map(|(name, zone, pods, addresses, eligible)| Node {
            name,
            zone,
            pod_cidrs: parsed(&pods),
            addresses: parsed(&addresses),
            eligible,
        })
}

pub fn host_addresses() -> impl Strategy<Value = Vec<IpAddr>> {
    let address = select(
        &[
            "127.0.0.1",
            "127.0.0.53",
            "::1",
            "10.0.0.254",
            "192.0.2.1",
            "198.51.100.1",
            "2001:db8::1",
            "fe80::1",
        ][..],
    );
    prop::collection::vec(address, 0..6).prop_map(|addresses| parsed(&addresses))
}

pub fn service_cidr_name() -> impl Strategy<Value = Arc<str>> {
    select(&["kubernetes", "more"][..]).prop_map(Into::into)
}

pub fn service_cidr() -> impl Strategy<Value = ServiceCidr> {
    // Ranges that overlap, within one object and between two.
    let cidrs = select(&["10.96.0.0/24", "10.96.0.0/16", "fd00:96::/112"][..]);
    (service_cidr_name(), prop::collection::vec(cidrs, 0..3)).prop_map(|(name, cidrs)| {
        ServiceCidr {
            name,
            cidrs: parsed(&cidrs),
        }
    })
}

const NODE_IPS: &[&[&str]] = &[&[], &["192.0.2.9"], &["198.51.100.1", "2001:db8::9"]];

pub fn settings() -> impl Strategy<Value = Settings> {
    let node_ips = select(NODE_IPS);
    (traffic(), node_ips, selection(), any::<bool>()).prop_map(
        |(traffic, node_ips, node_ports, localhost_node_ports)| Settings {
            node: NODE.into(),
            traffic,
            node_ips: parsed(node_ips),
            node_ports,
            localhost_node_ports,
            reserved: Vec::new(),
        },
    )
}

fn selection() -> impl Strategy<Value = NodePortSelection> {
    let cidr = select(
        &[
            "0.0.0.0/0",
            "::/0",
            "127.0.0.0/8",
            "192.0.2.0/24",
            "198.51.100.0/24",
            "2001:db8::/64",
        ][..],
    );
    prop_oneof![
        2 => Just(NodePortSelection::All),
        1 => Just(NodePortSelection::Primary),
        3 => prop::collection::vec(cidr, 0..4)
            .prop_map(|cidrs| NodePortSelection::Cidrs(parsed(&cidrs))),
    ]
}

fn traffic() -> impl Strategy<Value = Traffic> {
    let detectors = vec![
        Detector::None,
        Detector::ClusterCidr(parsed(&["10.0.0.0/16"])),
        Detector::ClusterCidr(parsed(&["fd00::/64", "10.0.0.0/16"])),
        Detector::NodeCidr,
        Detector::BridgeInterface("cbr0".into()),
        Detector::InterfaceNamePrefix("veth".into()),
    ];
    (select(detectors), any::<bool>()).prop_map(|(detector, masquerade_all)| Traffic {
        detector,
        masquerade_all,
    })
}
