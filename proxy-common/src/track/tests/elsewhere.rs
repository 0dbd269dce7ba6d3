//! Endpoints on other nodes, which see this one in the place of clients: what becomes of the entries, of
//! answers and of errors. What such flows have in common with all others, the other files show.

use std::{net::SocketAddr, vec::Vec};

use super::{
    Client, EVERY, Family, World,
    journey::{BEGIN, ack, at, data, datagram, fin, key, syn, taken, tcp},
    ports::{far, from, passed, ports, seen},
};
use crate::{
    address,
    in_memory::{Build, Payload, programs::sweeps},
    node::NodeAddressKey,
    packet::parse::flags,
    socket::TCP,
    track::{
        DIALLED, INSIDE, SNAT, Table,
        reason::{Outcome, Reason},
    },
};

#[test]
fn what_is_left_of_a_flow_that_is_gone_is_swept_and_its_port_is_free() {
    for family in far() {
        let lose = |world: &World, client: &Client<'_>, endpoint| {
            world.maps(|maps| {
                maps.track.remove(&client.key(TCP));
                maps.track.remove(&client.inside(endpoint, TCP));
            });
        };
        let world = family.world(1);
        ports(&world, 1);
        let client = family.client(&world);
        let endpoint = client.connects();
        let all = world.maps(|maps| maps.track.keys());
        let seconds: Vec<_> = world.maps(|maps| {
            let is_second = |one: &&_| maps.track.get(one).unwrap().owner == SNAT;
            all.iter().filter(is_second).copied().collect()
        });
        assert_eq!(seconds.len(), 2);
        world.pass(6);
        assert!(seconds.iter().all(|one| !sweeps(&world.alone(), *one)));
        let again = || {
            let world = World::of(world.maps(|maps| maps.clone()));
            lose(
                &world,
                &Client {
                    world: &world,
                    ..client
                },
                endpoint,
            );
            world
        };
        for one in &seconds {
            let world = again();
            assert!(sweeps(&world.alone(), *one));
            world.maps(|maps| assert_eq!((maps.track.keys().len(), maps.flows), (0, 1)));
        }
        assert_eq!(from(&family, &again(), 7).connects(), endpoint);
        // One that was just made may be ahead of its flow.
        let world = family.world(1);
        ports(&world, 1);
        let client = family.client(&world);
        let endpoint = client.connects();
        lose(&world, &client, endpoint);
        assert!(seconds.iter().all(|one| !sweeps(&world.alone(), *one)));
        assert_eq!(
            from(&family, &world, 7).sends(syn()),
            passed(Reason::NoPort)
        );
    }
}

#[test]
fn a_flow_for_which_there_is_no_room_goes_on_for_a_while_and_leaves_nothing() {
    for family in far() {
        let begun = || {
            let world = family.world(1);
            world.maps(|maps| maps.track.room = 3);
            let client = family.client(&world);
            let endpoint = client.sends(syn()).unwrap();
            client.hears(endpoint, taken()).unwrap();
            let full = Err(Outcome::dropped(Reason::TableFull));
            assert_eq!(client.sends(ack()), full);
            world.pass(world.maps(|maps| maps.settings.udp_unanswered));
            world.sweep();
            (world, endpoint)
        };
        let (world, endpoint) = begun();
        world.maps(|maps| maps.track.room = 4);
        assert_eq!(family.client(&world).sends(ack()), Ok(endpoint));
        let (world, _) = begun();
        world.pass(1);
        world.sweep();
        world.maps(|maps| assert_eq!((maps.track.keys().len(), maps.flows), (0, 0)));
    }
}

/// The keys of the entries by which an endpoint sees this node.
fn second(
    client: &Client<'_>,
    endpoint: SocketAddr,
    protocol: u8,
) -> [crate::track::ConnectionKey; 2] {
    let source = seen(client, endpoint, protocol == TCP);
    [
        key(client.from, endpoint, protocol, INSIDE),
        key(endpoint, source, protocol, DIALLED),
    ]
}

#[test]
fn a_handshake_goes_on_whatever_the_kernel_needed_the_room_of() {
    for family in far() {
        for evicted in 0..16_usize {
            let world = family.world(3);
            let client = family.client(&world);
            let endpoint = client.sends(syn()).unwrap();
            let keys = [
                [client.key(TCP), client.inside(endpoint, TCP)],
                second(&client, endpoint, TCP),
            ];
            for (index, key) in keys.as_flattened().iter().enumerate() {
                if evicted >> index & 1 == 1 {
                    world.maps(|maps| assert!(maps.opening.remove(key)));
                }
            }
            assert_eq!(client.sends(syn()), Ok(endpoint), "{evicted:b}");
            assert_eq!(client.hears(endpoint, taken()), Ok(()), "{evicted:b}");
            assert_eq!(client.sends(ack()), Ok(endpoint), "{evicted:b}");
            assert_eq!(client.hears(endpoint, data()), Ok(()));
            world.maps(|maps| {
                assert_eq!(maps.halves().len(), 0);
                // What lost both of its own entries, and began as another flow, may leave the rest of the first.
                assert!(
                    maps.track.keys().len() == 4 && maps.flows == 2,
                    "{evicted:b}"
                );
            });
        }
    }
}

#[test]
fn an_answered_flow_mends_what_it_can_and_ends_where_nobody_knows_its_port() {
    for family in far() {
        for lost in [0, 1] {
            let world = family.world(1);
            let client = family.client(&world);
            let endpoint = client.connects();
            let keys = second(&client, endpoint, TCP);
            world.maps(|maps| assert!(maps.track.remove(&keys[lost])));
            world.pass(1);
            if lost == 1 {
                assert_eq!(client.sends(data()), Ok(endpoint));
                assert_eq!(client.hears(endpoint, data()), Ok(()));
            } else {
                let superseded = Err(Outcome::dropped(Reason::Superseded));
                assert_eq!(client.sends(data()), superseded);
                world.maps(|maps| assert_eq!(maps.track.get(&client.key(TCP)), None));
            }
        }
    }
}

#[test]
fn what_is_no_answer_is_for_whoever_has_the_port_on_this_node() {
    for family in far() {
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = client.sends(syn()).unwrap();
        let foreign = [
            tcp(flags::SYN | flags::ACK, 9, 70_000),
            tcp(flags::RST | flags::ACK, 9, 70_000),
            tcp(flags::RST, 9, 70_000),
            tcp(flags::SYN, 9, 0),
            tcp(flags::ACK, 9, 70_000),
            Payload::Tcp(flags::ACK, 9, 70_000, b"some data".to_vec()),
        ];
        for payload in foreign {
            assert_eq!(client.hears(endpoint, payload), Err(Outcome::UNTOUCHED));
        }
        assert_eq!(client.hears(endpoint, taken()), Ok(()));
        assert_eq!(client.sends(ack()), Ok(endpoint));
    }
}

#[test]
fn one_port_may_reach_an_endpoint_elsewhere_by_two_frontends_only_if_they_are_told_apart() {
    for family in far() {
        let world = family.world(1);
        let (first, second) = (family.client(&world), family.second(&world));
        let endpoint = first.connects();
        assert_eq!(second.sends(syn()), passed(Reason::Collision));
        assert_eq!(first.sends(data()), Ok(endpoint));
        assert_eq!(first.hears(endpoint, data()), Ok(()));
    }
}

#[test]
fn an_endpoint_elsewhere_may_dial_itself() {
    for family in far() {
        for payload in [syn(), datagram()] {
            let world = family.world(1);
            let mut client = family.client(&world);
            client.from.set_ip(at(family.endpoints[0]).ip());
            let endpoint = client.sends(payload.clone()).unwrap();
            assert_eq!(endpoint, at(family.endpoints[0]));
            let answer = if payload.is_tcp() {
                taken()
            } else {
                datagram()
            };
            assert_eq!(client.hears(endpoint, answer), Ok(()));
        }
    }
}

#[test]
fn data_before_the_endpoint_has_taken_the_connection_is_dropped() {
    for family in far() {
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = client.sends(syn()).unwrap();
        let early = Err(Outcome::dropped(Reason::Unanswered));
        assert_eq!(client.sends(data()), early);
        assert_eq!(client.sends(fin()), early);
        client.hears(endpoint, taken()).unwrap();
        let guessed = Payload::Tcp(flags::ACK, 1001, BEGIN + 9, b"some data".to_vec());
        assert_eq!(client.sends(guessed), early);
        assert_eq!(client.sends(data()), Ok(endpoint));
    }
}

/// An error about a packet.
fn error(of: SocketAddr, to: SocketAddr, kind: u8, quoted: Build) -> Build {
    Build {
        from: of,
        to,
        options: 0,
        payload: Payload::Error(kind, quoted.into(), 64),
    }
}

/// What is too big, and what is to go another way.
const fn kinds(family: &Family) -> [u8; 2] {
    if matches!(family.client.as_bytes()[0], b'[') {
        [2, 137]
    } else {
        [3, 5]
    }
}

#[test]
fn errors_about_either_way_reach_who_sent_the_packet_with_the_addresses_that_it_knows() {
    for family in far() {
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = client.connects();
        let source = seen(&client, endpoint, true);
        let router = at(family.router);
        let packet = |from, to| Build {
            from,
            to,
            options: 0,
            payload: data(),
        };
        let [too_big, redirect] = kinds(&family);
        let client_dialled = packet(client.from, client.to);
        let between = packet(client.from, endpoint);
        let back_between = packet(endpoint, client.from);
        let as_sent = packet(source, endpoint);
        let as_answered = packet(endpoint, source);
        let heard = packet(client.to, client.from);
        // A router on the way to the other node; then one of this node's own.
        let met = world.comes(&error(router, source, too_big, as_sent).bytes());
        let inside = error(router, client.from, too_big, between.clone());
        assert_eq!(met, (Outcome::TRANSLATED, inside.bytes()));
        let met = world.leaves(&inside.bytes());
        let told = error(router, client.from, too_big, client_dialled);
        assert_eq!(met, (Outcome::TRANSLATED, told.bytes()));
        // A router on the way back to the client.
        let met = world.comes(&error(router, client.to, too_big, heard).bytes());
        let inside = error(router, endpoint, too_big, back_between.clone());
        assert_eq!(met, (Outcome::TRANSLATED, inside.bytes()));
        let met = world.leaves(&inside.bytes());
        let told = error(router, endpoint, too_big, as_answered);
        assert_eq!(met, (Outcome::TRANSLATED, told.bytes()));
        if endpoint.is_ipv6() {
            // A redirect quotes elsewhere: see `errors`.
            continue;
        }
        // This node would have either of them send to the other without it.
        for (quoted, to) in [(between, client.from), (back_between, endpoint)] {
            let (outcome, _) = world.leaves(&error(source, to, redirect, quoted).bytes());
            assert_eq!(outcome, Outcome::dropped(Reason::Redirect));
        }
    }
}

#[test]
fn an_entry_is_known_by_its_address_and_port_whatever_the_other_family_says() {
    for family in far() {
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = client.connects();
        let [forward, back] = second(&client, endpoint, TCP);
        world.maps(|maps| {
            let [forward, back] = [forward, back].map(|key| {
                let value = maps.table(Table::Track).get(&key).unwrap();
                assert!(value.holds_for(&key) && value.owner == SNAT);
                value
            });
            let node = address::from_ip(at(family.node).ip());
            assert_eq!(
                (forward.address, back.address),
                (node, address::from_ip(client.from.ip()))
            );
            let own = maps.track.get(&client.key(TCP)).unwrap();
            assert_eq!([forward.serial, back.serial], [own.serial; 2]);
        });
    }
}

#[test]
fn an_endpoint_in_the_network_of_this_host_sees_the_client() {
    for family in [EVERY[4], EVERY[5]] {
        let world = family.world(1);
        let endpoint = at(family.endpoints[0]);
        let address = address::from_ip(endpoint.ip());
        world.maps(|maps| maps.own_addresses.push(NodeAddressKey { address }));
        world.maps(|maps| maps.way.0 = 0);
        let client = family.client(&world);
        assert_eq!(client.connects(), endpoint);
        assert_eq!(client.asks(), endpoint);
        world.maps(|maps| assert_eq!((maps.track.keys().len(), maps.flows), (4, 2)));
    }
}
