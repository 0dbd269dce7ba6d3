//! Random Services. They share addresses with each other, and one kind of address with another.

use std::num::{NonZeroU16, NonZeroU32};

use proptest::{prelude::*, sample::select};
use proxy_model::{ExternalAccess, IpNet, ObjectName, Service, ServicePort, TrafficPolicy};

use super::{namespace, parsed, port_name, protocol};

pub fn name() -> impl Strategy<Value = ObjectName> {
    (namespace(), select(&["api", "web"][..]))
        .prop_map(|(namespace, name)| ObjectName::new(namespace, name))
}

pub fn service() -> impl Strategy<Value = Service> {
    let v4 = prop::option::weighted(0.9, select(&["10.96.0.1", "10.96.0.2"][..]));
    let v6 = prop::option::weighted(0.5, select(&["fd00:96::1", "fd00:96::2"][..]));
    let affinity = prop::option::weighted(0.2, select(&[10, 10_800][..]));
    (
        name(),
        v4,
        v6,
        prop::collection::vec(port(), 0..4),
        policy(),
        affinity,
        prop::option::weighted(0.6, external()),
    )
        .prop_map(
            |(name, v4, v6, mut ports, internal_policy, affinity, external)| {
                // Unique by name and protocol, as the type promises.
                ports.sort_by(|a, b| (&a.name, a.protocol).cmp(&(&b.name, b.protocol)));
                ports.dedup_by(|a, b| (&a.name, a.protocol) == (&b.name, b.protocol));
                let cluster_ips: Vec<_> = v4.into_iter().chain(v6).collect();
                Service {
                    name,
                    cluster_ips: parsed(&cluster_ips),
                    ports,
                    internal_policy,
                    affinity: affinity.and_then(NonZeroU32::new),
                    external: external.map(Box::new),
                }
            },
        )
}

fn port() -> impl Strategy<Value = ServicePort> {
    let node_port = prop::option::weighted(0.4, select(&[80, 30053, 30080][..]));
    (port_name(), protocol(), select(&[53, 80][..]), node_port).prop_map(
        |(name, protocol, port, node_port)| ServicePort {
            name,
            protocol,
            port,
            node_port: node_port.and_then(NonZeroU16::new),
        },
    )
}

fn policy() -> impl Strategy<Value = TrafficPolicy> {
    select(&[TrafficPolicy::Cluster, TrafficPolicy::Local][..])
}

fn external() -> impl Strategy<Value = ExternalAccess> {
    // ClusterIPs of others and an address of the node among them, which any user may write.
    let ips = select(
        &[
            "10.96.0.1",
            "192.0.2.1",
            "203.0.113.1",
            "203.0.113.2",
            "2001:db8:1::1",
        ][..],
    );
    let balanced = select(
        &[
            "10.96.0.2",
            "203.0.113.1",
            "203.0.113.2",
            "2001:db8:1::1",
            "fd00:96::1",
        ][..],
    );
    (
        policy(),
        prop::collection::vec(ips, 0..3),
        prop::collection::vec(balanced, 0..3),
        prop::collection::vec(source_range(), 0..4),
        prop::option::of(select(&[31000, 31001][..])),
    )
        .prop_map(
            |(policy, ips, balanced, source_ranges, health)| ExternalAccess {
                policy,
                ips: parsed(&ips),
                load_balancer_ips: parsed(&balanced),
                proxied_ips: Vec::new(),
                source_ranges,
                // As the type promises.
                health_check_node_port: health
                    .filter(|_| policy == TrafficPolicy::Local)
                    .and_then(NonZeroU16::new),
            },
        )
}

fn source_range() -> impl Strategy<Value = IpNet> {
    let narrow = select(
        &[
            "192.0.2.0/24",
            "192.0.2.2/32",
            "198.51.100.7/24",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "2001:db8::/64",
            "fd00::/64",
        ][..],
    );
    let everything = select(&["0.0.0.0/0", "10.0.0.0/0", "::/0"][..]);
    prop_oneof![8 => narrow, 1 => everything].prop_map(|range| range.parse().unwrap())
}
