//! Connections of TCP, from the first packet to the last.

use std::net::SocketAddr;

use super::{
    Client, EVERY,
    journey::{BEGIN, ack, at, data, fin, fin_too, rst, syn, taken, tcp},
};
use crate::{
    in_memory::programs::sweeps,
    packet::parse::flags,
    socket::TCP,
    track::{
        SNAT,
        reason::{Outcome, Reason},
        seen,
    },
};

#[test]
fn a_connection_is_made_used_and_closed() {
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        let endpoint = client.connects();
        for _ in 0..3 {
            assert_eq!(client.sends(data()), Ok(endpoint));
            assert_eq!(client.hears(endpoint, data()), Ok(()));
            world.pass(1);
        }
        assert_eq!(client.sends(fin()), Ok(endpoint));
        assert_eq!(client.hears(endpoint, fin_too()), Ok(()));
        assert_eq!(client.sends(ack()), Ok(endpoint));
        world.maps(|maps| {
            assert_eq!((maps.flows, maps.halves().len()), (family.counts(), 0));
            assert_eq!(maps.track.keys().len(), family.entries(1));
            assert_eq!(maps.opening.keys(), []);
            for key in maps.track.keys() {
                let value = maps.track.get(&key).unwrap();
                if value.owner != SNAT {
                    assert_eq!(value.seen(), seen::FIN);
                }
            }
        });
    }
}

#[test]
fn an_unanswered_connection_takes_no_room_in_track() {
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        let endpoint = client.sends(syn()).unwrap();
        // Who only claims to be the client does not know with what the endpoint begins.
        assert_eq!(client.sends(ack()), Ok(endpoint));
        assert_eq!(client.hears(endpoint, taken()), Ok(()));
        for guess in [0, BEGIN - 1, BEGIN, BEGIN + 2] {
            assert_eq!(client.sends(tcp(flags::ACK, 1001, guess)), Ok(endpoint));
        }
        // Breaking it is no answer either.
        assert_eq!(
            client.sends(tcp(flags::RST | flags::ACK, 1001, BEGIN + 1)),
            Ok(endpoint)
        );
        world.maps(|maps| assert_eq!((maps.flows, maps.track.keys().len()), (0, 0)));
        assert_eq!(client.sends(ack()), Ok(endpoint));
        world.maps(|maps| {
            assert_eq!(
                (maps.flows, maps.track.keys().len()),
                (family.counts(), family.entries(1))
            );
        });
    }
}

#[test]
fn a_refusal_reaches_the_client() {
    for family in EVERY {
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = client.sends(syn()).unwrap();
        let refuses = tcp(flags::RST | flags::ACK, 1001, 0);
        assert_eq!(client.hears(endpoint, refuses), Ok(()));
        world.maps(|maps| assert_eq!(maps.track.keys(), []));
    }
}

#[test]
fn nothing_but_an_answer_is_heard_before_the_client_went_on() {
    for family in EVERY {
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = client.sends(syn()).unwrap();
        for payload in [ack(), data(), fin()] {
            assert_eq!(client.hears(endpoint, payload), Err(Outcome::UNTOUCHED));
        }
        assert_eq!(client.hears(endpoint, taken()), Ok(()));
    }
}

#[test]
fn an_endpoint_that_answered_in_two_ways_is_believed_with_either() {
    // One that keeps nothing of half a connection begins anew with each packet of the client, and
    // the client follows the answer that came first.
    for acknowledged in [BEGIN + 1, BEGIN + 78] {
        let family = EVERY[0];
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = client.sends(syn()).unwrap();
        assert_eq!(client.hears(endpoint, taken()), Ok(()));
        let other = tcp(flags::SYN | flags::ACK, BEGIN + 77, 1001);
        assert_eq!(client.hears(endpoint, other), Ok(()));
        assert_eq!(
            client.sends(tcp(flags::ACK, 1001, acknowledged)),
            Ok(endpoint)
        );
        assert_eq!(world.maps(|maps| maps.flows), family.counts());
    }
}

#[test]
fn an_answer_sent_again_is_the_same_answer() {
    let family = EVERY[0];
    let world = family.world(1);
    let client = family.client(&world);
    let endpoint = client.sends(syn()).unwrap();
    assert_eq!(client.hears(endpoint, taken()), Ok(()));
    assert_eq!(client.hears(endpoint, taken()), Ok(()));
    assert_eq!(client.sends(tcp(flags::ACK, 1001, BEGIN + 7)), Ok(endpoint));
    assert_eq!(world.maps(|maps| maps.flows), 0);
}

#[test]
fn a_connection_to_an_endpoint_that_is_removed_goes_on() {
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        let endpoint = client.connects();
        family.lead_without(&world, 3, endpoint);
        assert_eq!(client.sends(data()), Ok(endpoint));
        assert_eq!(client.hears(endpoint, data()), Ok(()));
    }
}

#[test]
fn a_half_open_connection_to_an_endpoint_that_is_removed_goes_on_too() {
    let family = EVERY[0];
    let world = family.world(3);
    let client = family.client(&world);
    let endpoint = client.sends(syn()).unwrap();
    assert_eq!(client.hears(endpoint, taken()), Ok(()));
    family.lead_without(&world, 3, endpoint);
    assert_eq!(client.sends(ack()), Ok(endpoint));
    assert_eq!(client.hears(endpoint, data()), Ok(()));
}

#[test]
fn packets_from_the_middle_of_a_connection_that_is_not_known_are_untouched() {
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        for payload in [ack(), data(), fin(), rst(), taken()] {
            assert_eq!(client.sends(payload.clone()), Err(Outcome::UNTOUCHED));
            let endpoint = at(family.endpoints[0]);
            assert_eq!(client.hears(endpoint, payload), Err(Outcome::UNTOUCHED));
        }
        world.maps(|maps| assert_eq!(maps.opening.keys(), []));
    }
}

#[test]
fn what_is_sent_to_the_endpoint_itself_is_untouched_both_ways() {
    for family in EVERY {
        let world = family.world(1);
        let endpoint = at(family.endpoints[0]);
        let mut direct = family.client(&world);
        direct.to = endpoint;
        for payload in [syn(), ack(), data()] {
            assert_eq!(direct.sends(payload), Err(Outcome::UNTOUCHED));
        }
        assert_eq!(direct.hears(endpoint, taken()), Err(Outcome::UNTOUCHED));
        // Also while the same client, from another port, talks to it by a frontend.
        let mut client = family.client(&world);
        client.from.set_port(40001);
        client.connects();
        assert_eq!(direct.sends(data()), Err(Outcome::UNTOUCHED));
        assert_eq!(direct.hears(endpoint, data()), Err(Outcome::UNTOUCHED));
    }
}

#[test]
fn a_lost_half_of_a_flow_is_back_after_a_second() {
    for lose_dialled in [true, false] {
        let family = EVERY[0];
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = client.connects();
        let (dialled, inside) = (client.key(TCP), client.inside(endpoint, TCP));
        world.maps(|maps| {
            maps.track
                .remove(if lose_dialled { &dialled } else { &inside });
            maps.flows -= i64::from(lose_dialled);
            assert_eq!(maps.halves().len(), 1);
        });
        world.pass(1);
        if lose_dialled {
            assert_eq!(client.hears(endpoint, data()), Ok(()));
        } else {
            assert_eq!(client.sends(data()), Ok(endpoint));
        }
        world.maps(|maps| assert_eq!((maps.halves().len(), maps.flows), (0, family.counts())));
        assert_eq!(client.sends(data()), Ok(endpoint));
        assert_eq!(client.hears(endpoint, data()), Ok(()));
    }
}

#[test]
fn a_flow_whose_other_end_is_another_flows_is_let_go() {
    for swept in [false, true] {
        let family = EVERY[0];
        let world = family.world(1);
        let (client, second) = (family.client(&world), family.second(&world));
        let endpoint = client.connects();
        // As if the second frontend's flow had got the place.
        let (inside, to) = (client.inside(endpoint, TCP), second.to);
        world.maps(|maps| {
            let mut value = maps.track.get(&inside).unwrap();
            value.address = crate::address::from_ip(to.ip());
            value.serial ^= 1;
            value.seal(&inside);
            maps.track.remove(&inside);
            maps.track.add(inside, value);
        });
        world.pass(1);
        if swept {
            assert!(client.is_swept());
        } else {
            let dropped = Outcome::dropped(Reason::Superseded);
            assert_eq!(client.sends(data()), Err(dropped));
        }
        world.maps(|maps| {
            assert_eq!(maps.track.keys(), [inside]);
            assert_eq!(maps.flows, 0);
        });
    }
}

/// How a connection ends.
type End = fn(&Client<'_>, SocketAddr);

fn client_ends(client: &Client<'_>) {
    client.sends(fin()).unwrap();
}

#[test]
fn what_is_over_is_swept_when_its_time_is_up_and_not_before() {
    let cases: [(&str, End, u32); 4] = [
        ("idle", |_, _| {}, 7200),
        ("half closed", |client, _| client_ends(client), 300),
        (
            "closed",
            |client, endpoint| {
                client_ends(client);
                client.hears(endpoint, fin_too()).unwrap();
            },
            10,
        ),
        (
            "broken",
            |client, endpoint| client.hears(endpoint, rst()).unwrap(),
            5,
        ),
    ];
    for (what, end, stays) in cases {
        for role in 0..2 {
            let family = EVERY[0];
            let world = family.world(1);
            let client = family.client(&world);
            let endpoint = client.connects();
            end(&client, endpoint);
            let sweeps = || {
                sweeps(
                    &world.alone(),
                    [client.key(TCP), client.inside(endpoint, TCP)][role],
                )
            };
            world.pass(stays);
            assert!(!sweeps(), "{what}");
            world.pass(1);
            assert!(sweeps(), "{what}");
            assert!(!sweeps(), "{what}");
            world.maps(|maps| assert_eq!((maps.track.keys().len(), maps.flows), (0, 0)));
        }
    }
}

#[test]
fn an_end_that_another_cpu_used_just_now_keeps_the_flow() {
    let family = EVERY[0];
    let world = family.world(1);
    let client = family.client(&world);
    let endpoint = client.connects();
    world.pass(7201);
    // It read the clock later than the sweep did.
    let inside = client.inside(endpoint, TCP);
    world.maps(|maps| {
        let now = maps.seconds;
        let (at, _) = maps.track.find(&inside).unwrap();
        maps.track.write(at, |value| value.last = now + 1);
    });
    assert!(!client.is_swept());
}
