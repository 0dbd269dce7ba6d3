//! Any value survives the wire, and nothing from the wire does harm.

use proptest::{collection::vec, prelude::*};
use prost::Message as _;

use super::{
    decode::{item, key},
    encode,
};
use crate::{Item, ItemKey, client::tests::swallow, tests::states, wire};

fn any_item() -> impl Strategy<Value = Item> {
    let service = states::key().prop_flat_map(|key| {
        let family = key.family;
        (Just(key), states::service(family))
    });
    prop_oneof![
        states::facts().prop_map(|facts| Item::Node(Box::new(facts))),
        service.prop_map(|(key, state)| Item::ServicePort(key, state)),
        states::health_check().prop_map(|(key, check)| Item::HealthCheck(key, check)),
        vec(states::diagnostic(), 1..4).prop_map(|mut all| {
            let object = all[0].object.clone();
            for one in &mut all {
                one.object = object.clone();
            }
            all.sort_unstable();
            all.dedup();
            Item::Diagnostics(all)
        }),
    ]
}

fn any_key() -> impl Strategy<Value = ItemKey> {
    prop_oneof![
        states::key().prop_map(ItemKey::ServicePort),
        states::health_check().prop_map(|(key, _)| ItemKey::HealthCheck(key)),
        states::diagnostic().prop_map(|one| ItemKey::Diagnostics(one.object)),
    ]
}

proptest! {
    #[test]
    fn any_item_survives_the_wire(sent in any_item()) {
        let bytes = encode::item(&sent).encode_to_vec();
        let came = item(wire::Item::decode(&*bytes).unwrap());
        prop_assert_eq!(came, Ok(Some(sent)));
    }

    #[test]
    fn any_key_survives_the_wire(sent in any_key()) {
        let bytes = encode::key(&sent).encode_to_vec();
        let came = key(wire::Key::decode(&*bytes).unwrap());
        prop_assert_eq!(came, Ok(Some(sent)));
    }

    #[test]
    fn any_bytes_are_an_item_or_an_error(bytes in vec(any::<u8>(), 0..200)) {
        swallow(&bytes);
    }

    /// Nearly right is more dangerous than noise, which seldom gets far.
    #[test]
    fn damaged_items_are_an_item_or_an_error(
        sent in any_item(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let operation: wire::Operation = crate::server::upsert(&sent);
        let mut bytes = operation.encode_to_vec();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        swallow(&bytes);
    }
}

fn service_port(change: impl FnOnce(&mut wire::ServicePort)) -> wire::Item {
    let endpoint = |last, port| wire::Endpoint {
        address: vec![10, 0, 0, last],
        port,
        local: None,
    };
    let mut service = wire::ServicePort {
        key: Some(wire::ServicePortKey {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            port: "http".to_owned(),
            protocol: wire::Protocol::Tcp.into(),
            family: wire::IpFamily::Ipv4.into(),
        }),
        frontends: vec![wire::Frontend {
            kind: wire::FrontendKind::ClusterIp.into(),
            address: vec![10, 96, 0, 1],
            port: 80,
        }],
        cluster_endpoints: Some(wire::EndpointSet {
            endpoints: vec![endpoint(1, 80), endpoint(2, 80)],
        }),
        local_endpoints: None,
        has_any_endpoints: true,
        internal_policy: wire::TrafficPolicy::Cluster.into(),
        external_policy: wire::TrafficPolicy::Cluster.into(),
        affinity_seconds: None,
        source_ranges: None,
    };
    change(&mut service);
    wire::Item {
        item: Some(wire::item::Item::ServicePort(service)),
    }
}

#[test]
fn what_makes_no_sense_is_named() {
    type Change = fn(&mut wire::ServicePort);
    for (change, expected) in [
        (
            (|service| service.key = None) as Change,
            "service_port.key: is required",
        ),
        (
            |service| service.key.as_mut().unwrap().protocol = 0,
            "service_port.key.protocol: is not specified, and must be",
        ),
        (
            |service| service.key.as_mut().unwrap().family = 9,
            "service_port.key.family: has the unknown value 9: the other side may be newer",
        ),
        (
            |service| service.frontends[0].address = vec![1, 2, 3],
            "service_port shop/web:http/TCP/IPv4.frontends[0].address: has 3 bytes; an address \
             has 4 or 16",
        ),
        (
            |service| service.frontends[0].address = vec![],
            "service_port shop/web:http/TCP/IPv4.frontends[0].address: has 0 bytes; an address \
             has 4 or 16",
        ),
        (
            |service| service.frontends[0].port = 65_536,
            "service_port shop/web:http/TCP/IPv4.frontends[0].port: is 65536; a port is 1 to 65535",
        ),
        (
            |service| {
                let set = service.cluster_endpoints.as_mut().unwrap();
                set.endpoints[1].address = vec![0; 16];
            },
            "service_port shop/web:http/TCP/IPv4.cluster_endpoints[1].address: :: is not an \
             IPv4 address, but the key is of that family",
        ),
        (
            |service| service.external_policy = 0,
            "service_port shop/web:http/TCP/IPv4.external_policy: is not specified, and must be",
        ),
        (
            |service| service.affinity_seconds = Some(0),
            "service_port shop/web:http/TCP/IPv4.affinity_seconds: is 0: omit it if there is no \
             affinity",
        ),
        (
            |service| {
                service.source_ranges = Some(wire::SourceRanges {
                    ranges: vec![wire::Cidr {
                        address: vec![10, 0, 0, 0],
                        prefix_length: 33,
                    }],
                    own_address: false,
                });
            },
            "service_port shop/web:http/TCP/IPv4.source_ranges.ranges[0].prefix_length: 33 is too \
             long for 10.0.0.0",
        ),
    ] {
        let error = item(service_port(change)).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn lists_come_in_order_whoever_sends_them() {
    let reversed = item(service_port(|service| {
        let set = service.cluster_endpoints.as_mut().unwrap();
        set.endpoints.reverse();
        set.endpoints.push(set.endpoints[0].clone());
    }));
    assert_eq!(reversed, item(service_port(|_| {})));
}

#[test]
fn an_endpoint_says_where_it_is_if_its_brain_does() {
    let places = |places: &[Option<bool>]| {
        let (last, all) = places.split_last().unwrap();
        let decoded = item(service_port(|service| {
            let endpoints = &mut service.cluster_endpoints.as_mut().unwrap().endpoints;
            let (one, other) = (endpoints[0].clone(), endpoints[1].clone());
            let with = |endpoint: &wire::Endpoint, local| wire::Endpoint {
                local,
                ..endpoint.clone()
            };
            *endpoints = all.iter().map(|local| with(&one, *local)).collect();
            endpoints.push(with(&other, *last));
        }));
        let Ok(Some(Item::ServicePort(_, service))) = decoded else {
            panic!("{decoded:?}");
        };
        let set = service.cluster_endpoints.as_deref().unwrap();
        set.iter().map(|one| one.local).collect::<Vec<_>>()
    };
    let (here, elsewhere) = (Some(true), Some(false));
    assert_eq!(places(&[here, elsewhere]), [here, elsewhere]);
    assert_eq!(places(&[None, here]), [None, here]);
    // One address is in a set once, whatever is said of it.
    assert_eq!(places(&[here, elsewhere, here]), [None, here]);
    assert_eq!(places(&[here, here, None]), [here, None]);
}

#[test]
fn kinds_of_a_later_version_are_skipped() {
    assert_eq!(item(wire::Item { item: None }), Ok(None));
    assert_eq!(key(wire::Key { key: None }), Ok(None));
}
