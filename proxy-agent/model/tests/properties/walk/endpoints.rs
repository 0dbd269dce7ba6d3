//! Random EndpointSlices: endpoints of two nodes and two zones, with and without hints.

use std::{net::IpAddr, sync::Arc};

use proptest::{prelude::*, sample::select};
use proxy_model::{
    Conditions, EndpointSlice, Hints, IpFamily, ObjectName, SliceEndpoint, SlicePort,
};

use super::{NODE, namespace, port_name, protocol};

pub fn slice_name() -> impl Strategy<Value = ObjectName> {
    (namespace(), select(&["s1", "s2", "s3"][..]))
        .prop_map(|(namespace, name)| ObjectName::new(namespace, name))
}

pub fn slice() -> impl Strategy<Value = EndpointSlice> {
    let port =
        (port_name(), protocol(), select(&[8080, 9090][..])).prop_map(|(name, protocol, port)| {
            SlicePort {
                name,
                protocol,
                port,
            }
        });
    let family = select(&[IpFamily::V4, IpFamily::V6][..]);
    // A controller writes hints for all endpoints or for none; now and then it is halfway through.
    let hinted = prop_oneof![2 => Just(0.01), 2 => Just(0.99), 1 => Just(0.8)];
    let endpoints = hinted.prop_flat_map(|hinted| prop::collection::vec(endpoint(hinted), 0..5));
    (
        slice_name(),
        select(&["api", "web"][..]),
        family,
        prop::collection::vec(port, 0..3),
        endpoints,
    )
        .prop_map(|(name, service, family, ports, mut endpoints)| {
            for endpoint in &mut endpoints {
                if let (IpFamily::V6, IpAddr::V4(v4)) = (family, endpoint.address) {
                    let last = u16::from(v4.octets()[3]);
                    endpoint.address = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]);
                }
            }
            let service = ObjectName::new(Arc::clone(&name.namespace), service);
            EndpointSlice {
                name,
                service,
                family,
                ports,
                endpoints,
            }
        })
}

fn endpoint(hinted: f64) -> impl Strategy<Value = SliceEndpoint> {
    let node = select(&[None, Some(NODE), Some("node-b")][..]);
    // Ready ones often enough that hints come to count.
    let conditions = (prop::bool::weighted(0.7), any::<bool>(), any::<bool>()).prop_map(
        |(ready, serving, terminating)| Conditions {
            ready,
            serving,
            terminating,
        },
    );
    (
        1..4_u8,
        conditions,
        node,
        prop::option::weighted(hinted, hints()),
    )
        .prop_map(|(last, conditions, node, hints)| SliceEndpoint {
            address: IpAddr::from([10, 0, 0, last]),
            conditions,
            node: node.map(Into::into),
            hints: hints.map(Arc::new),
        })
}

fn hints() -> impl Strategy<Value = Hints> {
    let names = |names: &[&str]| names.iter().map(|&name| name.into()).collect();
    let zones: Vec<&[&str]> = vec![&["zone-a"], &["zone-b"], &["zone-b", "zone-a"], &[]];
    let nodes: Vec<&[&str]> = vec![&[], &[], &[], &[NODE], &["node-b"], &["node-b", NODE]];
    (select(zones), select(nodes)).prop_map(move |(zones, nodes)| Hints {
        zones: names(zones),
        nodes: names(nodes),
    })
}
