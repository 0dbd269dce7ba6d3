//! Endpoints on other nodes see an address and a port of this one in the place of a client: which ones, what
//! else may have a port, and when it serves the next flow.

use std::{collections::BTreeSet, net::SocketAddr, string::ToString as _, vec::Vec};

use super::{
    Client, EVERY, Family, World,
    journey::{SET, ack, acked_last, at, data, datagram, fin, fin_too, key, rst, syn, taken},
};
use crate::{
    socket::{TCP, UDP},
    track::{
        DIALLED,
        reason::{Outcome, Reason},
    },
};

/// Of those with endpoints elsewhere.
pub(super) fn far() -> [Family; 4] {
    [EVERY[2], EVERY[3], EVERY[4], EVERY[5]]
}

/// The client, from another port.
pub(super) fn from<'a>(family: &Family, world: &'a World, port: u16) -> Client<'a> {
    let mut client = family.client(world);
    client.from.set_port(port);
    client
}

/// As whom an endpoint saw the client last.
pub(super) fn seen(client: &Client<'_>, endpoint: SocketAddr, is_tcp: bool) -> SocketAddr {
    let who = (client.from, endpoint, is_tcp);
    client.world.maps(|maps| maps.seen_as[&who])
}

/// Endpoints see ports from 40000, so many.
pub(super) fn ports(world: &World, count: u32) {
    world.maps(|maps| {
        maps.settings.first_port = 40_000;
        maps.settings.last_port = 40_000 + count - 1;
    });
}

pub(super) fn passed(reason: Reason) -> Result<SocketAddr, Outcome> {
    Err(Outcome::passed(reason))
}

/// Both connections are closed, by both sides.
fn close(client: &Client<'_>, endpoint: SocketAddr) {
    client.sends(fin()).unwrap();
    client.hears(endpoint, fin_too()).unwrap();
    client.sends(acked_last()).unwrap();
}

#[test]
fn the_address_is_the_one_that_is_nearest_to_where_packets_go() {
    let [v4, v6, ..] = far();
    let choose = |family: Family, hop, sources: &[(&str, u32)]| {
        let world = family.world(1);
        world.leave_by(3, hop, sources);
        let client = family.client(&world);
        let endpoint = client.sends(syn()).unwrap();
        seen(&client, endpoint, true).ip().to_string()
    };
    let sources = [
        ("192.0.2.1:0", 24),
        ("198.51.100.1:0", 24),
        ("203.0.113.1:0", 30),
    ];
    for (hop, expected) in [
        ("192.0.2.9:0", "192.0.2.1"),
        ("198.51.100.9:0", "198.51.100.1"),
        ("203.0.113.2:0", "203.0.113.1"),
        // A neighbour of none.
        ("203.0.113.4:0", "192.0.2.1"),
        ("10.1.0.1:0", "192.0.2.1"),
    ] {
        assert_eq!(choose(v4, hop, &sources), expected, "{hop}");
    }
    // The endpoint's own address decides.
    for (sources, expected) in [
        (
            [("[2001:db8::1]:0", 64), ("[fd00:0:1::1]:0", 64)],
            "fd00:0:1::1",
        ),
        (
            [("[fd00:0:1::1]:0", 64), ("[fd00:0:0:1::1]:0", 64)],
            "fd00:0:0:1::1",
        ),
        // What neighbours do not have in common does not count.
        (
            [("[fd00:8000::1]:0", 16), ("[fd00::9]:0", 16)],
            "fd00:8000::1",
        ),
    ] {
        assert_eq!(choose(v6, "[fe80::1]:0", &sources), expected, "{sources:?}");
    }
}

#[test]
fn without_a_way_an_address_or_a_port_a_flow_is_left_to_the_layer_beneath() {
    for family in far() {
        for payload in [syn(), datagram()] {
            for (reason, spoil) in [
                (
                    Reason::NoRoute,
                    (|world| world.maps(|maps| maps.way.0 = 0)) as fn(&World),
                ),
                (Reason::NoSource, |world| world.maps(|maps| maps.way.0 = 4)),
                (Reason::NoSource, |world| {
                    world.maps(|maps| maps.sources.clear());
                }),
                (Reason::NoPort, |world| {
                    world.maps(|maps| maps.settings.last_port = 32_767);
                }),
                (Reason::NoPort, |world| {
                    world.maps(|maps| maps.settings.first_port = 65_535);
                    world.maps(|maps| maps.reserved.push(65_535));
                }),
            ] {
                let world = family.world(3);
                let client = family.client(&world);
                spoil(&world);
                assert_eq!(client.sends(payload.clone()), passed(reason));
                assert_eq!(client.sends(payload.clone()), passed(Reason::Beneath));
                let key = client.key(if payload.is_tcp() { TCP } else { UDP });
                world.maps(|maps| assert_eq!(maps.opening.keys(), [key], "{reason:?}"));
            }
        }
    }
}

#[test]
fn a_damaged_address_is_none() {
    for family in far() {
        let world = family.world(1);
        world.maps(|maps| maps.sources.values_mut().for_each(|one| one.mask[15] ^= 1));
        assert_eq!(family.client(&world).sends(syn()), passed(Reason::NoSource));
    }
}

#[test]
fn every_port_of_the_range_is_used_but_those_that_something_else_has() {
    for family in far() {
        for is_tcp in [true, false] {
            let protocol = if is_tcp { TCP } else { UDP };
            let payload = || if is_tcp { syn() } else { datagram() };
            let world = family.world(1);
            ports(&world, 12);
            let [node, endpoint] = [family.node, family.endpoints[0]].map(at);
            let port = |port| SocketAddr::new(node.ip(), port);
            // By the operator's will; dialled at this address, or at any; a socket's.
            world.maps(|maps| maps.reserved.push(40_003));
            world.serve(&port(40_005).to_string(), protocol, SET);
            world.serve_node_port(&port(40_007).to_string(), protocol, SET);
            let socket = key(endpoint, port(40_009), protocol, DIALLED);
            world.maps(|maps| maps.sockets.push(socket));
            let mut used = BTreeSet::new();
            for number in 1..400 {
                let client = from(&family, &world, number);
                match client.sends(payload()) {
                    Ok(to) => assert!(used.insert(seen(&client, to, is_tcp).port())),
                    Err(outcome) => assert_eq!(outcome, Outcome::passed(Reason::NoPort)),
                }
            }
            let expected: Vec<u16> = (40_000..40_012)
                .filter(|port| ![40_003, 40_005, 40_007, 40_009].contains(port))
                .collect();
            assert_eq!(Vec::from_iter(used), expected);
        }
    }
}

#[test]
fn a_port_that_something_else_has_costs_no_flow_its_beginning() {
    for family in far() {
        for is_tcp in [true, false] {
            let protocol = if is_tcp { TCP } else { UDP };
            for drawn in 0..100 {
                let world = family.world(1);
                world.maps(|maps| maps.random = drawn);
                ports(&world, 12);
                let [node, endpoint] = [family.node, family.endpoints[0]].map(at);
                let port = |port| SocketAddr::new(node.ip(), port);
                world.serve_node_port(&port(40_007).to_string(), protocol, SET);
                let socket = key(endpoint, port(40_009), protocol, DIALLED);
                world.maps(|maps| maps.sockets.push(socket));
                let payload = if is_tcp { syn() } else { datagram() };
                family.client(&world).sends(payload).unwrap();
            }
        }
    }
}

#[test]
fn the_one_port_that_is_not_reserved_is_found() {
    for family in far() {
        let world = family.world(1);
        ports(&world, 12);
        world.maps(|maps| maps.reserved.extend(40_001..40_012));
        let client = family.client(&world);
        let endpoint = client.connects();
        assert_eq!(seen(&client, endpoint, true).port(), 40_000);
    }
}

#[test]
fn many_neighbours_that_are_used_keep_no_flow_from_a_free_port() {
    for family in far() {
        for payload in [syn(), datagram()] {
            let world = family.world(1);
            ports(&world, 20_000);
            world.maps(|maps| maps.reserved.extend(40_000..50_000));
            for number in 0..20 {
                let client = from(&family, &world, 1_024 + number);
                let endpoint = client.sends(payload.clone()).unwrap();
                let port = seen(&client, endpoint, payload.is_tcp()).port();
                assert!((50_000..60_000).contains(&port), "{port}");
            }
        }
    }
}

#[test]
fn a_flow_that_found_no_room_in_track_keeps_its_port() {
    for family in far() {
        let world = family.world(1);
        ports(&world, 1);
        let client = family.client(&world);
        let endpoint = client.sends(syn()).unwrap();
        client.hears(endpoint, taken()).unwrap();
        world.maps(|maps| maps.track.room = 2);
        let full = Err(Outcome::dropped(Reason::TableFull));
        assert_eq!(client.sends(ack()), full);
        world.pass(6);
        let second = from(&family, &world, 7).sends(syn());
        assert_eq!(second, passed(Reason::NoPort));
        world.maps(|maps| maps.track.room = 0);
        assert_eq!(client.sends(ack()), Ok(endpoint));
        assert_eq!(client.hears(endpoint, data()), Ok(()));
    }
}

#[test]
fn the_last_free_port_is_found_among_answered_flows_and_none_is_taken_twice() {
    for family in far() {
        let world = family.world(1);
        ports(&world, 12);
        let mut used = BTreeSet::new();
        for number in 0..12 {
            let client = from(&family, &world, 1000 + number);
            let endpoint = client.connects();
            assert!(used.insert(seen(&client, endpoint, true)), "{used:?}");
        }
        assert_eq!(family.client(&world).sends(syn()), passed(Reason::NoPort));
        // Of another protocol, or at another endpoint, they are free.
        family.client(&world).sends(datagram()).unwrap();
        family.lead(&world, &[1]);
        from(&family, &world, 7).connects();
    }
}

/// What ends a connection for good.
const ENDS: [fn(&Client<'_>, SocketAddr); 3] = [
    close,
    |client, _| {
        client.sends(rst()).unwrap();
    },
    |client, endpoint| client.hears(endpoint, rst()).unwrap(),
];

#[test]
fn a_port_whose_flow_is_over_serves_the_next_one_and_no_other_does() {
    for family in far() {
        for end in ENDS {
            let world = family.world(1);
            ports(&world, 1);
            let first = family.client(&world);
            let endpoint = first.connects();
            let second = from(&family, &world, 7);
            assert_eq!(second.sends(syn()), passed(Reason::NoPort));
            assert_eq!(first.sends(data()), Ok(endpoint));
            // One side is done, which is not the end.
            first.sends(fin()).unwrap();
            assert_eq!(
                from(&family, &world, 8).sends(syn()),
                passed(Reason::NoPort)
            );
            let world = family.world(1);
            ports(&world, 1);
            let first = family.client(&world);
            let endpoint = first.connects();
            end(&first, endpoint);
            let second = from(&family, &world, 9);
            assert_eq!(second.connects(), endpoint);
            assert_eq!(second.hears(endpoint, data()), Ok(()));
            world.maps(|maps| {
                assert_eq!((maps.flows, maps.track.keys().len()), (2, 4));
                assert_eq!((maps.opening.keys().len(), maps.halves().len()), (0, 0));
                assert!(maps.track.get(&second.key(TCP)).is_some());
            });
        }
    }
}

#[test]
fn a_port_of_datagrams_is_free_once_neither_side_sends_any() {
    for family in far() {
        let world = family.world(1);
        ports(&world, 1);
        let first = family.client(&world);
        let endpoint = first.asks();
        world.pass(100);
        first.hears(endpoint, datagram()).unwrap();
        world.pass(100);
        // The endpoint sent one meanwhile.
        assert_eq!(
            from(&family, &world, 7).sends(datagram()),
            passed(Reason::NoPort)
        );
        world.pass(21);
        assert_eq!(from(&family, &world, 8).sends(datagram()), Ok(endpoint));
        assert_eq!(first.sends(datagram()), passed(Reason::NoPort));
    }
}

#[test]
fn a_flow_ends_whose_address_this_host_has_no_more() {
    for family in far() {
        for is_tcp in [true, false] {
            let world = family.world(1);
            let client = family.client(&world);
            let (endpoint, payload) = if is_tcp {
                (client.connects(), data())
            } else {
                (client.asks(), datagram())
            };
            world.maps(|maps| maps.own_addresses.clear());
            // Whoever looks once a second.
            assert_eq!(client.sends(payload.clone()), Ok(endpoint));
            world.pass(1);
            let superseded = Outcome::dropped(Reason::Superseded);
            assert_eq!(client.sends(payload.clone()), Err(superseded));
            let key = client.key(if is_tcp { TCP } else { UDP });
            world.maps(|maps| assert_eq!(maps.track.get(&key), None));
            let another = if family.client.starts_with('[') {
                "[2001:db8::77]:0"
            } else {
                "192.0.2.77:0"
            };
            world.leave_by(3, family.router, &[(another, 24)]);
            if !is_tcp {
                assert_eq!(client.sends(payload), Ok(endpoint));
                assert_eq!(seen(&client, endpoint, false).ip(), at(another).ip());
            }
        }
    }
}
