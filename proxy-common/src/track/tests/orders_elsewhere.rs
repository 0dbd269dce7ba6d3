//! Two CPUs handle first packets at the same time that want one port of this node: whatever the order of
//! their operations, no two flows have it.

use std::{net::SocketAddr, vec::Vec};

use super::{
    Client, EVERY, Family, World,
    journey::{ack, acked_last, at, data, datagram, fin, fin_too, key, syn, taken},
    orders::{Act, Became, comes, in_every_order, leaves, settles, went},
};
use crate::{
    in_memory::Build,
    socket::{TCP, UDP},
    track::{
        DIALLED, INSIDE, SNAT,
        reason::{Outcome, Reason},
    },
};

/// With one port for all flows to an endpoint.
fn world(family: &Family, ports: u32) -> World {
    let world = family.world(1);
    world.maps(|maps| {
        maps.settings.first_port = 40_000;
        maps.settings.last_port = 40_000 + ports - 1;
    });
    world
}

fn second<'a>(family: &Family, world: &'a World) -> Client<'a> {
    let mut client = family.client(world);
    client.from.set_port(7);
    client
}

/// Each entry of a second translation is of one that is whole, and of a flow with its serial or of none.
fn are_whole(world: &World) {
    world.maps(|maps| {
        for table in [&maps.track, &maps.opening] {
            for key in table.keys() {
                let value = table.get(&key).unwrap();
                if value.owner != SNAT || key.role != INSIDE {
                    continue;
                }
                let (mut back, mut expected) = (key, value);
                crate::track::pair::other(&key, &value, &mut back, &mut expected);
                let found = table.get(&back).expect("the entry of replies");
                assert_eq!(found.serial, value.serial, "{key:?}");
            }
        }
    });
}

/// The endpoint takes the client's connection, which is heard by both hooks, and the client goes on. Whichever
/// of these ports it sees: to others nothing is sent.
fn handshake(family: &Family, client: &Client<'_>, endpoint: SocketAddr, ports: u16) -> Vec<Act> {
    let answer = |port| {
        let to = SocketAddr::new(at(family.node).ip(), 40_000 + port);
        Build {
            from: endpoint,
            to,
            options: 0,
            payload: taken(),
        }
    };
    let answers = (0..ports).map(|port| Act::Comes(answer(port).bytes()));
    answers
        .chain([leaves(client, endpoint, taken()), comes(client, ack())])
        .collect()
}

/// A connection is open, and no port is taken but its own. What began it may still be in OPENING, as with any
/// flow.
fn is_alone(world: &World) {
    are_whole(world);
    world.maps(|maps| {
        assert_eq!((maps.track.keys().len(), maps.flows), (4, 2));
        let mut opening = maps.opening.keys();
        opening.retain(|one| maps.opening.get(one).unwrap().owner == SNAT);
        assert_eq!(opening, []);
    });
}

/// Both packets of the client went to the endpoint, and its connection is open.
fn both_went_on(client: &Client<'_>, endpoint: SocketAddr, became: &[Became]) {
    for became in became {
        assert_eq!(went(became), Ok(endpoint));
    }
    settles(client, endpoint, &data());
    is_alone(client.world);
}

#[test]
fn copies_of_a_first_packet_take_one_port() {
    for family in [EVERY[2], EVERY[3]] {
        let world = world(&family, 1000);
        let copy = comes(&family.client(&world), syn());
        in_every_order(world, &[copy.clone(), copy], |world, became| {
            let client = family.client(world);
            // A copy may find the other one half way, and is sent again.
            let endpoint = at(family.endpoints[0]);
            assert!(became.iter().any(|one| went(one) == Ok(endpoint)));
            assert_eq!(client.sends(syn()), Ok(endpoint));
            client.hears(endpoint, taken()).unwrap();
            assert_eq!(client.sends(ack()), Ok(endpoint));
            settles(&client, endpoint, &data());
            is_alone(world);
        });
    }
}

#[test]
fn a_late_copy_of_a_first_packet_changes_nothing() {
    for family in [EVERY[2], EVERY[3]] {
        let world = world(&family, 1);
        let client = family.client(&world);
        let endpoint = client.sends(syn()).unwrap();
        let handshake = handshake(&family, &client, endpoint, 1);
        let acts = [comes(&client, syn()), Act::Each(handshake)];
        in_every_order(world, &acts, |world, became| {
            both_went_on(&family.client(world), endpoint, became);
        });
    }
}

#[test]
fn a_copy_that_takes_as_long_as_the_handshake_leaves_nothing() {
    let family = EVERY[2];
    let world = world(&family, 5);
    let client = family.client(&world);
    let endpoint = at(family.endpoints[0]);
    let mut acts = std::vec![comes(&client, syn())];
    acts.extend(handshake(&family, &client, endpoint, 5));
    let acts = [Act::Each(acts), comes(&client, syn())];
    in_every_order(world, &acts, |world, _| {
        let client = family.client(world);
        // If the copy was first, the handshake may have had no port yet.
        client.sends(syn()).unwrap();
        client.hears(endpoint, taken()).unwrap();
        client.sends(ack()).unwrap();
        settles(&client, endpoint, &data());
        is_alone(world);
    });
}

#[test]
fn a_copy_puts_no_entry_back_that_is_in_track_meanwhile() {
    for family in [EVERY[2], EVERY[3]] {
        let world = world(&family, 1);
        let client = family.client(&world);
        let endpoint = client.sends(syn()).unwrap();
        client.hears(endpoint, taken()).unwrap();
        let seen = SocketAddr::new(at(family.node).ip(), 40_000);
        let evicted = key(endpoint, seen, TCP, DIALLED);
        world.maps(|maps| assert!(maps.opening.remove(&evicted)));
        let acts = [comes(&client, syn()), comes(&client, ack())];
        in_every_order(world, &acts, |world, became| {
            both_went_on(&family.client(world), endpoint, became);
        });
    }
}

#[test]
fn a_port_that_another_client_takes_meanwhile_is_its_own() {
    for family in [EVERY[2], EVERY[3]] {
        let world = world(&family, 1);
        let first = family.client(&world);
        let endpoint = at(family.endpoints[0]);
        let mut acts = std::vec![comes(&first, syn())];
        acts.extend(handshake(&family, &first, endpoint, 1));
        let acts = [Act::Each(acts), comes(&second(&family, &world), syn())];
        in_every_order(world, &acts, |world, became| {
            let clients = [family.client(world), second(&family, world)];
            let no_port = Outcome::passed(Reason::NoPort);
            let (has, has_not) = match (went(&became[0]), went(&became[1])) {
                (Ok(_), Err(outcome)) if outcome == no_port => (clients[0], clients[1]),
                (_, Ok(_)) => (clients[1], clients[0]),
                other => panic!("{other:?}"),
            };
            has.sends(syn()).unwrap();
            assert!(has_not.sends(data()).is_err());
            are_whole(world);
        });
    }
}

#[test]
fn of_two_clients_one_gets_the_only_port() {
    for family in [EVERY[2], EVERY[3]] {
        let world = world(&family, 1);
        let acts = [
            comes(&family.client(&world), syn()),
            comes(&second(&family, &world), syn()),
        ];
        let orders = in_every_order(world, &acts, |world, became| {
            let clients = [family.client(world), second(&family, world)];
            let no_port = Err(Outcome::passed(Reason::NoPort));
            let went = [went(&became[0]), went(&became[1])];
            assert!(
                went.iter().filter(|one| one.is_ok()).count() <= 1,
                "{went:?}"
            );
            for (client, went) in clients.iter().zip(&went) {
                match went {
                    Ok(endpoint) => {
                        client.sends(syn()).unwrap();
                        client.hears(*endpoint, taken()).unwrap();
                        client.sends(ack()).unwrap();
                        settles(client, *endpoint, &data());
                    }
                    refused => assert_eq!(refused, &no_port),
                }
            }
            are_whole(world);
        });
        assert!(orders > 5, "{orders}");
    }
}

#[test]
fn a_port_that_is_freed_while_its_client_comes_back_serves_one_of_both() {
    // The other one differs in nothing that is shared, and there are thousands of orders.
    let family = EVERY[3];
    let world = world(&family, 1);
    let first = family.client(&world);
    let endpoint = first.connects();
    first.sends(fin()).unwrap();
    first.hears(endpoint, fin_too()).unwrap();
    first.sends(acked_last()).unwrap();
    let acts = [comes(&first, syn()), comes(&second(&family, &world), syn())];
    let orders = in_every_order(world, &acts, |world, became| {
        let clients = [family.client(world), second(&family, world)];
        for (client, became) in clients.iter().zip(became) {
            let Ok(endpoint) = went(became) else {
                continue;
            };
            // What lost its port to the other one is left beneath when it is sent again.
            if client.sends(syn()).is_err() {
                continue;
            }
            client.hears(endpoint, taken()).unwrap();
            client.sends(ack()).unwrap();
            settles(client, endpoint, &data());
        }
        are_whole(world);
        let open = world.maps(|maps| {
            let keys = maps.track.keys();
            keys.iter().filter(|one| one.role == INSIDE).count()
        });
        assert!(open <= 2, "{open}");
    });
    assert!(orders > 1000, "{orders}");
}

#[test]
fn two_first_packets_of_a_flow_of_this_node_get_the_same_port() {
    for family in [EVERY[2], EVERY[3]] {
        let world = world(&family, 1000);
        let client = family.client(&world);
        let endpoint = client.connects();
        let from: SocketAddr = world.maps(|maps| maps.seen_as[&(client.from, endpoint, true)]);
        let packet = Build {
            from,
            to: at(family.endpoints[0]),
            options: 0,
            payload: syn(),
        };
        let acts = [Act::Leaves(packet.bytes()), Act::Leaves(packet.bytes())];
        in_every_order(world, &acts, |world, became| {
            let mut ports = became.iter().map(|(outcome, packet)| {
                assert_eq!(*outcome, Outcome::TRANSLATED);
                super::journey::sender(packet.as_ref().unwrap(), 0)
            });
            let (one, other) = (ports.next().unwrap(), ports.next().unwrap());
            let again = world.leaves(&packet.bytes());
            assert_eq!(super::journey::sender(&again.1, 0), one);
            assert_eq!(one, other);
            assert_ne!(one, from);
        });
    }
}

#[test]
fn a_socket_that_opens_while_its_port_is_taken_hears_its_own_answers() {
    for family in [EVERY[2], EVERY[3]] {
        for (payload, protocol) in [(syn(), TCP), (datagram(), UDP)] {
            let world = world(&family, 1);
            let (endpoint, from) = (
                at(family.endpoints[0]),
                SocketAddr::new(at(family.node).ip(), 40_000),
            );
            let packet = Build {
                from,
                to: endpoint,
                options: 0,
                payload: payload.clone(),
            };
            let answers = key(endpoint, from, protocol, DIALLED);
            let opens = [Act::Opens(answers), Act::Leaves(packet.bytes())];
            let acts = [
                comes(&family.client(&world), payload),
                Act::Each(opens.into()),
            ];
            let orders = in_every_order(world, &acts, |world, became| {
                let moved = became[1].0 == Outcome::TRANSLATED;
                let taken = world.maps(|maps| maps.opening.get(&answers).is_some());
                assert_eq!(went(&became[0]).is_ok(), taken);
                assert!(moved || !taken, "both have the port");
            });
            assert!(orders >= 5, "{orders}");
        }
    }
}
