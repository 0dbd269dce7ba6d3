//! Random objects of a small universe. Which address belongs to what is left to chance, as far as an
//! API server would take it.

use std::{
    fmt::Debug,
    net::IpAddr,
    num::{NonZeroU16, NonZeroU32},
    str::FromStr,
    sync::Arc,
};

use proxy_model::{
    Conditions, EndpointSlice, ExternalAccess, IpFamily, Node, ObjectName, Protocol, Service,
    ServiceCidr, ServicePort, SliceEndpoint, SlicePort, TrafficPolicy,
};

use super::Chance;

const SERVICES: [&str; 4] = ["api", "db", "dns", "web"];
const PORT_NAMES: [&str; 3] = ["", "http", "main"];
const CLUSTER_IPS: [&str; 4] = ["10.96.0.1", "10.96.0.2", "10.96.0.3", "10.96.0.4"];
const CLUSTER_IPS6: [&str; 3] = ["fd00:10:96::1", "fd00:10:96::2", "fd00:10:96::3"];

/// One of the node's own, and a ClusterIP of somebody.
const EXTERNAL_IPS: [&str; 6] = [
    "203.0.113.1",
    "203.0.113.2",
    "192.0.2.11",
    "10.96.0.2",
    "2001:db8:7::1",
    "2001:db8:7::2",
];
const BALANCED_IPS: [&str; 6] = [
    "203.0.113.2",
    "203.0.113.3",
    "198.51.100.11",
    "2001:db8:7::2",
    "2001:db8:7::3",
    "10.96.0.3",
];
const SOURCE_RANGES: [&str; 8] = [
    "203.0.113.0/24",
    "198.51.100.0/24",
    "192.0.2.0/24",
    "10.244.0.0/24",
    "0.0.0.0/0",
    "2001:db8:9::/64",
    "2001:db8::/64",
    "fd00:10:244::/64",
];

/// Pods here and elsewhere, and what runs in the network of a host: this one's, another's.
const ENDPOINTS: [&str; 6] = [
    "10.244.0.1",
    "10.244.0.2",
    "10.244.1.1",
    "10.244.1.2",
    "192.0.2.11",
    "192.0.2.12",
];
const ENDPOINTS6: [&str; 5] = [
    "fd00:10:244::1",
    "fd00:10:244::2",
    "fd00:10:244:1::1",
    "2001:db8::11",
    "2001:db8::12",
];

/// Texts that are known to be right, as what they stand for.
pub(super) fn parsed<T: FromStr<Err: Debug>>(texts: &[&str]) -> Vec<T> {
    let parsed = texts.iter().map(|text| text.parse());
    parsed
        .collect::<Result<_, _>>()
        .expect("the universe is written by us")
}

pub(super) fn service_names() -> impl Iterator<Item = ObjectName> {
    SERVICES.iter().map(|name| ObjectName::new("shop", *name))
}

/// Two for each Service, called after it.
pub(super) fn slice_names() -> impl Iterator<Item = ObjectName> {
    let names = |name| [0, 1].map(|number| ObjectName::new("shop", format!("{name}-{number}")));
    SERVICES.iter().flat_map(names)
}

pub(super) fn service_name(chance: &mut Chance) -> ObjectName {
    chance.pick(&service_names().collect::<Vec<_>>())
}

pub(super) fn slice_name(chance: &mut Chance) -> ObjectName {
    chance.pick(&slice_names().collect::<Vec<_>>())
}

pub(super) fn service(chance: &mut Chance) -> Service {
    let mut cluster_ips = Vec::new();
    if chance.often() {
        cluster_ips.push(chance.pick(&CLUSTER_IPS));
    }
    if cluster_ips.is_empty() || chance.below(2) == 0 {
        cluster_ips.push(chance.pick(&CLUSTER_IPS6));
    }
    let mut ports: Vec<ServicePort> = (0..=chance.below(3)).map(|_| port(chance)).collect();
    // Unique by name and protocol, as the API server has it.
    ports.sort_by(|a, b| (&a.name, a.protocol).cmp(&(&b.name, b.protocol)));
    ports.dedup_by(|a, b| (&a.name, a.protocol) == (&b.name, b.protocol));
    let affinity = if chance.seldom() { 10_800 } else { 0 };
    Service {
        name: service_name(chance),
        cluster_ips: parsed(&cluster_ips),
        ports,
        internal_policy: policy(chance),
        affinity: NonZeroU32::new(affinity),
        external: chance.often().then(|| Box::new(external(chance))),
    }
}

fn port(chance: &mut Chance) -> ServicePort {
    let node_port = if chance.below(2) == 0 {
        chance.pick(&[80, 30053, 30080])
    } else {
        0
    };
    ServicePort {
        name: chance.pick(&PORT_NAMES).into(),
        protocol: protocol(chance),
        port: chance.pick(&[53, 80]),
        node_port: NonZeroU16::new(node_port),
    }
}

fn protocol(chance: &mut Chance) -> Protocol {
    chance.pick(&[Protocol::Tcp, Protocol::Tcp, Protocol::Udp, Protocol::Sctp])
}

fn policy(chance: &mut Chance) -> TrafficPolicy {
    chance.pick(&[
        TrafficPolicy::Cluster,
        TrafficPolicy::Cluster,
        TrafficPolicy::Local,
    ])
}

fn external(chance: &mut Chance) -> ExternalAccess {
    ExternalAccess {
        policy: policy(chance),
        ips: parsed(&chance.some(&EXTERNAL_IPS, 2)),
        load_balancer_ips: parsed(&chance.some(&BALANCED_IPS, 2)),
        proxied_ips: Vec::new(),
        source_ranges: match chance.below(2) {
            0 => Vec::new(),
            _ => parsed(&chance.some(&SOURCE_RANGES, 3)),
        },
        health_check_node_port: None,
    }
}

pub(super) fn slice(chance: &mut Chance, name: ObjectName) -> EndpointSlice {
    let service = &name.name[..name.name.len() - 2];
    let is_v4 = chance.often();
    let addresses: &[&str] = if is_v4 { &ENDPOINTS } else { &ENDPOINTS6 };
    let mut ports: Vec<SlicePort> = PORT_NAMES
        .iter()
        .flat_map(|name| {
            [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
                .into_iter()
                .map(move |protocol| (*name, protocol))
        })
        .map(|(name, protocol)| SlicePort {
            name: name.into(),
            protocol,
            port: chance.pick(&[8080, 9090]),
        })
        .collect();
    ports.retain(|_| chance.often());
    EndpointSlice {
        service: ObjectName::new("shop", service),
        family: if is_v4 { IpFamily::V4 } else { IpFamily::V6 },
        ports,
        endpoints: chance
            .some(addresses, 5)
            .into_iter()
            .map(|address| endpoint(chance, address))
            .collect(),
        name,
    }
}

fn endpoint(chance: &mut Chance, address: &str) -> SliceEndpoint {
    // Which node an address is on is no matter of chance.
    let address: IpAddr = address.parse().expect("the universe is written by us");
    let here = ["10.244.0.", "192.0.2.11", "fd00:10:244::", "2001:db8::11"];
    let is_here = here
        .iter()
        .any(|prefix| address.to_string().starts_with(prefix));
    let node: Option<Arc<str>> = Some(if is_here { "node-a" } else { "node-b" }.into());
    let ready = chance.often();
    SliceEndpoint {
        address,
        conditions: Conditions {
            ready,
            serving: ready || chance.below(2) == 0,
            terminating: !ready && chance.below(2) == 0,
        },
        node,
        hints: None,
    }
}

pub(super) fn node(chance: &mut Chance) -> Node {
    let pods: &[&str] = chance.pick(&[
        &["10.244.0.0/24", "fd00:10:244::/64"][..],
        &["10.244.0.0/24"],
        &[],
    ]);
    Node {
        name: "node-a".into(),
        zone: None,
        pod_cidrs: parsed(pods),
        addresses: parsed(&["192.0.2.11", "2001:db8::11"]),
        eligible: true,
    }
}

pub(super) fn ranges(chance: &mut Chance) -> ServiceCidr {
    let cidrs: &[&str] =
        chance.pick(&[&["10.96.0.0/24"][..], &["10.96.0.0/16", "fd00:10:96::/112"]]);
    ServiceCidr {
        name: "kubernetes".into(),
        cidrs: parsed(cidrs),
    }
}
