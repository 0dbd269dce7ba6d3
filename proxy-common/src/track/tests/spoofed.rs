//! Packets with an endpoint's address that somebody else sends: another pod, a host outside that has this
//! node as its router, or a firewall that rejects. They do not end connections either.

use std::net::SocketAddr;

use super::{
    Client, EVERY,
    journey::{BEGIN, ack, acked, answer, data, fin, fin_too, syn, tcp},
};
use crate::{
    in_memory::Payload,
    packet::parse::flags,
    socket::TCP,
    track::{INSIDE, seen},
};

/// The number that follows what the endpoint sent, once they are connected.
const NEXT: u32 = BEGIN + 1;
/// Numbers that somebody may guess who is not on the way.
const GUESSES: [u32; 6] = [
    0,
    NEXT - 1,
    NEXT + (1 << 23),
    NEXT + (1 << 30),
    NEXT ^ (1 << 31),
    u32::MAX,
];

/// What was seen of the endpoint, and what it acknowledged last.
fn noted(client: &Client<'_>, endpoint: SocketAddr) -> (u32, u32) {
    let inside = client.inside(endpoint, TCP);
    let value = client.world.maps(|maps| maps.track.get(&inside)).unwrap();
    (value.seen(), value.reached(INSIDE))
}

#[test]
fn what_is_guessed_says_nothing_of_an_endpoint() {
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        let endpoint = client.connects();
        world.pass(60);
        family.lead_without(&world, 3, endpoint);
        for guess in GUESSES {
            for said in [
                flags::RST,
                flags::RST | flags::ACK,
                flags::FIN | flags::ACK,
                flags::ACK,
            ] {
                client.hears(endpoint, answer(said, guess, guess)).unwrap();
                assert_eq!(noted(&client, endpoint), (0, 1001), "{said} {guess}");
                // Nor does what somebody sends to match it, as from the client.
                client.sends(tcp(flags::RST, guess, 0)).unwrap();
                assert_eq!(client.sends(tcp(flags::SYN, guess, 0)), Ok(endpoint));
            }
            client.sends(ack()).unwrap();
        }
        world.pass(7200);
        assert!(!client.is_swept());
        assert_eq!(client.sends(data()), Ok(endpoint));
        assert_eq!(client.hears(endpoint, data()), Ok(()));
    }
}

#[test]
fn an_endpoint_that_breaks_a_connection_is_believed_whatever_is_acknowledged() {
    for family in EVERY {
        let world = family.world(2);
        let client = family.client(&world);
        let endpoint = client.connects();
        for sequence in [NEXT, NEXT + 9] {
            let part = Payload::Tcp(flags::ACK, 1001, sequence, b"some data".to_vec());
            client.hears(endpoint, part).unwrap();
        }
        client
            .hears(endpoint, answer(flags::RST, NEXT + 18, 0))
            .unwrap();
        assert_eq!(noted(&client, endpoint).0, seen::RST | seen::BROKEN);
        family.lead_without(&world, 2, endpoint);
        assert_ne!(client.connects(), endpoint);
    }
}

#[test]
fn an_endpoint_that_knows_no_connection_ends_it_by_what_the_client_acknowledged() {
    let family = EVERY[0];
    let world = family.world(2);
    let client = family.client(&world);
    let endpoint = client.connects();
    let part = Payload::Tcp(flags::ACK, 1001, NEXT, b"is lost on its way".to_vec());
    client.hears(endpoint, part).unwrap();
    // Its host began anew; the client sends what it has, and hears its own number.
    client.sends(data()).unwrap();
    client.hears(endpoint, answer(flags::RST, NEXT, 0)).unwrap();
    assert_eq!(noted(&client, endpoint).0, seen::RST | seen::BROKEN);
}

#[test]
fn an_endpoint_that_left_and_refuses_the_next_connection_has_none() {
    for family in EVERY {
        for (acknowledged, ends) in [(77_778, true), (77_777, false), (1001, false), (0, false)] {
            let world = family.world(2);
            let client = family.client(&world);
            let endpoint = client.connects();
            family.lead_without(&world, 2, endpoint);
            refuses_a_syn(&client, endpoint, acknowledged);
            world.pass(5);
            assert_eq!(client.sends(tcp(flags::SYN, 88_888, 0)), Ok(endpoint));
            world.pass(1);
            let next = client.sends(tcp(flags::SYN, 88_888, 0));
            assert_eq!(next != Ok(endpoint), ends, "{acknowledged}");
        }
    }
}

/// Somebody opens a connection in place of this one, and it is refused.
fn refuses_a_syn(client: &Client<'_>, endpoint: SocketAddr, acknowledged: u32) {
    assert_eq!(client.sends(tcp(flags::SYN, 77_777, 0)), Ok(endpoint));
    let refusal = answer(flags::RST | flags::ACK, 0, acknowledged);
    client.hears(endpoint, refusal).unwrap();
}

#[test]
fn a_firewall_that_refuses_every_connection_ends_none() {
    for family in EVERY {
        let world = family.world(2);
        let client = family.client(&world);
        let endpoint = client.connects();
        refuses_a_syn(&client, endpoint, 77_778);
        world.pass(300);
        assert!(!client.is_swept());
        refuses_a_syn(&client, endpoint, 77_778);
        assert_eq!(client.sends(data()), Ok(endpoint));
        assert_eq!(client.hears(endpoint, acked()), Ok(()));
        // The endpoint has it.
        world.pass(7200);
        assert!(!client.is_swept());
        refuses_a_syn(&client, endpoint, 77_778);
        world.pass(301);
        assert!(client.is_swept());
    }
}

#[test]
fn an_end_that_somebody_guessed_stands_in_the_way_of_no_true_one() {
    for family in EVERY {
        let world = family.world(2);
        let client = family.client(&world);
        let endpoint = client.connects();
        let far = NEXT + 4_000_000;
        let forged = || answer(flags::FIN | flags::ACK, far, 1001);
        client.hears(endpoint, forged()).unwrap();
        client.sends(fin()).unwrap();
        client.hears(endpoint, acked()).unwrap();
        // The endpoint goes on.
        client.hears(endpoint, forged()).unwrap();
        world.pass(300);
        assert!(!client.is_swept());
        client.hears(endpoint, fin_too()).unwrap();
        world.pass(11);
        assert!(client.is_swept());
    }
}

#[test]
fn an_entry_that_was_lost_learns_its_number_from_the_other() {
    for family in EVERY {
        for high in [1001, 3_000_000_000] {
            let world = family.world(2);
            let client = family.client(&world);
            let endpoint = client.connects();
            // The endpoint's next packet brings it back, and the client's first one of a second asks.
            assert!(world.maps(|maps| maps.track.remove(&client.key(TCP))));
            world.pass(1);
            client.hears(endpoint, ack()).unwrap();
            // Until then nothing is known, not even of the first numbers.
            client.hears(endpoint, answer(flags::RST, 0, 0)).unwrap();
            assert_eq!(noted(&client, endpoint).0, 0);
            world.maps(|maps| {
                let inside = client.inside(endpoint, TCP);
                let (at, _) = maps.track.find(&inside).unwrap();
                maps.track.write(at, |value| value.acknowledged = high);
            });
            world.pass(1);
            let part = Payload::Tcp(flags::ACK, high, NEXT, b"some data".to_vec());
            client.sends(part).unwrap();
            client.sends(tcp(flags::RST, high + 9, 0)).unwrap();
            family.lead_without(&world, 2, endpoint);
            assert_ne!(client.sends(syn()), Ok(endpoint), "{high}");
        }
    }
}
