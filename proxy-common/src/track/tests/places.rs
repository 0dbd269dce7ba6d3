//! From one port of a client to two frontends of one endpoint, one after the other: when the later flow gets the
//! place of the earlier one behind the translation.

use super::{
    Client, EVERY, World,
    journey::{Went, ack, acked_last, data, datagram, fin, fin_too, syn, taken},
    ports::far,
};
use crate::{
    in_memory::Payload,
    track::{
        ALONE, Setting,
        reason::{Outcome, Reason},
    },
};

/// How many families there are whose endpoints see the client. They come first.
const NEAR: usize = 2;

fn alone(world: World) -> World {
    world.maps(|maps| maps.settings.flags |= ALONE);
    world
}

const fn collides() -> Went {
    Err(Outcome::passed(Reason::Collision))
}

const fn nowhere() -> Went {
    Err(Outcome::passed(Reason::Collision).and_dropped())
}

/// Opens and closes a connection.
fn closes(client: &Client<'_>) {
    let endpoint = client.connects();
    assert_eq!(client.sends(data()), Ok(endpoint));
    client.sends(fin()).unwrap();
    client.hears(endpoint, fin_too()).unwrap();
    client.sends(acked_last()).unwrap();
}

/// The later flow goes on, and nothing is left of another.
fn goes_on(client: &Client<'_>) {
    let endpoint = client.connects();
    assert_eq!(client.sends(ack()), Ok(endpoint));
    assert_eq!(client.hears(endpoint, data()), Ok(()));
    is_one(client.world, 4);
}

/// Asserts that there is one flow, with so many entries at most.
fn is_one(world: &World, most: usize) {
    world.maps(|maps| {
        assert_eq!(maps.halves(), []);
        let entries = maps.track.keys().len() + maps.opening.keys().len();
        assert!((2..=most).contains(&entries), "{entries}");
    });
}

#[test]
fn a_closed_connection_gives_way_where_the_endpoint_sees_another_port_or_nothing_is_beneath() {
    for (index, family) in EVERY.into_iter().enumerate() {
        for is_alone in [false, true] {
            if index < NEAR && !is_alone {
                // The layer beneath has another port for it.
                let world = family.world(1);
                closes(&family.client(&world));
                assert_eq!(family.second(&world).sends(syn()), collides());
                continue;
            }
            let world = family.world(1);
            let world = if is_alone { alone(world) } else { world };
            let (client, second) = (family.client(&world), family.second(&world));
            for _ in 0..3 {
                closes(&client);
                closes(&second);
            }
            goes_on(&client);
        }
    }
}

#[test]
fn an_open_connection_keeps_its_place_whatever_is_beneath() {
    for family in EVERY {
        for is_alone in [false, true] {
            let world = family.world(1);
            let world = if is_alone { alone(world) } else { world };
            let (client, second) = (family.client(&world), family.second(&world));
            let endpoint = client.connects();
            world.pass(1000);
            let kept = if is_alone { nowhere() } else { collides() };
            assert_eq!(second.sends(syn()), kept);
            client.sends(fin()).unwrap();
            if is_alone {
                assert_eq!(second.sends(syn()), kept, "the endpoint goes on");
            }
            assert_eq!(client.hears(endpoint, data()), Ok(()));
            assert_eq!(client.sends(ack()), Ok(endpoint));
        }
    }
}

#[test]
fn nothing_beneath_the_later_datagram_has_the_place_at_once_where_the_endpoint_sees_another_port() {
    for family in far() {
        for is_answered in [false, true] {
            let world = alone(family.world(1));
            let clients = [family.client(&world), family.second(&world)];
            for client in [0, 1, 0, 1, 1, 0].map(|which| &clients[which]) {
                let endpoint = client.sends(datagram()).unwrap();
                if is_answered {
                    assert_eq!(client.hears(endpoint, datagram()), Ok(()));
                }
                is_one(&world, 4);
            }
        }
    }
}

/// Whether the second frontend is served from the port of the first one, so many seconds after its last packet.
fn is_served(world: &World, clients: [&Client<'_>; 2], begun: &[Payload; 2], after: u32) -> bool {
    let world = World::of(world.maps(|maps| maps.clone()));
    let [client, second] = clients.map(|one| Client {
        world: &world,
        ..*one
    });
    let [first, answer] = begun;
    let endpoint = client.sends(first.clone()).unwrap();
    if *first != syn() {
        client.hears(endpoint, answer.clone()).unwrap();
    }
    world.pass(after);
    second.sends(first.clone()) == Ok(endpoint)
}

#[test]
fn what_is_not_seen_to_be_over_gives_way_once_it_was_silent() {
    for (index, family) in EVERY.into_iter().enumerate() {
        for is_alone in [false, true] {
            let world = family.world(1);
            let world = if is_alone { alone(world) } else { world };
            let clients = [&family.client(&world), &family.second(&world)];
            let answered = world.maps(|maps| maps.settings.get(Setting::UdpAnswered));
            for begun in [[syn(), taken()], [datagram(), datagram()]] {
                let after = match (index < NEAR, is_alone, begun[0] == syn()) {
                    (true, false, _) => continue,
                    (true, true, false) => 5,
                    (false, true, false) => 0,
                    _ => answered,
                };
                let served = |after| is_served(&world, clients, &begun, after);
                assert!(served(after), "{index} {is_alone} {begun:?}");
                assert!(
                    after == 0 || !served(after - 1),
                    "{index} {is_alone} {begun:?}"
                );
            }
        }
    }
}
