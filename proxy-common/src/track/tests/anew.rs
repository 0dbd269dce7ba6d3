//! An endpoint that lost a connection without a word takes the next one of the same client and port.

use std::net::SocketAddr;

use super::{
    Client, EVERY,
    journey::{BEGIN, answer, data, fin, tcp},
};
use crate::{in_memory::Payload, packet::parse::flags, socket::TCP, track::seen};

/// The client's next SYN, and what the endpoint begins with.
const SYN: u32 = 88_888;
const OFFER: u32 = 900_000;

/// The endpoint takes the client's next SYN.
fn is_offered(client: &Client<'_>, endpoint: SocketAddr) {
    assert_eq!(client.sends(tcp(flags::SYN, SYN, 0)), Ok(endpoint));
    // Numbers of a SYN are not turned.
    let offer = tcp(flags::SYN | flags::ACK, OFFER, SYN + 1);
    client.hears(endpoint, offer).unwrap();
}

/// Both sides close the new connection.
fn closes(client: &Client<'_>, endpoint: SocketAddr) {
    let ends = flags::FIN | flags::ACK;
    client.sends(tcp(ends, SYN + 1, OFFER + 1)).unwrap();
    let done = answer(ends, OFFER + 1, SYN + 2);
    client.hears(endpoint, done).unwrap();
    client.sends(tcp(flags::ACK, SYN + 2, OFFER + 2)).unwrap();
}

/// What is known of the connection when the next one begins.
type Before = fn(&Client<'_>, SocketAddr);

const BEFORE: [Before; 4] = [
    |_, _| {},
    |client, endpoint| {
        client.sends(tcp(flags::SYN, 77_777, 0)).unwrap();
        let refusal = answer(flags::RST | flags::ACK, 0, 77_778);
        client.hears(endpoint, refusal).unwrap();
    },
    |client, _| {
        client.sends(fin()).unwrap();
    },
    |client, endpoint| client.hears(endpoint, fin()).unwrap(),
];

#[test]
fn the_end_of_a_connection_in_place_of_one_that_was_lost_is_seen() {
    for family in EVERY {
        for (number, before) in BEFORE.iter().enumerate() {
            let world = family.world(2);
            let client = family.client(&world);
            let endpoint = client.connects();
            before(&client, endpoint);
            is_offered(&client, endpoint);
            client.sends(tcp(flags::ACK, SYN + 1, OFFER + 1)).unwrap();
            world.pass(7200);
            assert!(!client.is_swept(), "{number}");
            closes(&client, endpoint);
            assert!(!client.is_swept());
            world.pass(11);
            assert!(client.is_swept(), "{number}");
            assert_eq!(world.maps(|maps| maps.flows), 0);
        }
    }
}

#[test]
fn the_place_of_such_a_connection_is_free_for_the_next_one() {
    for family in EVERY {
        let world = family.world(2);
        let client = family.client(&world);
        let endpoint = client.connects();
        is_offered(&client, endpoint);
        // The first data completes it as well.
        let first = Payload::Tcp(flags::ACK, SYN + 1, OFFER + 1, b"some data".to_vec());
        client.sends(first).unwrap();
        // Nor need the client have what the endpoint sends until it breaks it.
        let sends = Payload::Tcp(flags::ACK, SYN + 10, OFFER + 1, b"some data".to_vec());
        client.hears(endpoint, sends).unwrap();
        let breaks = answer(flags::RST, OFFER + 1 + 9, 0);
        client.hears(endpoint, breaks).unwrap();
        family.lead_without(&world, 2, endpoint);
        assert_ne!(client.connects(), endpoint);
        assert_eq!(world.maps(|maps| maps.flows), family.counts());
    }
}

#[test]
fn the_numbers_of_such_a_connection_count_at_once() {
    let nine = |begins| Payload::Tcp(flags::ACK, begins, OFFER + 1, b"some data".to_vec());
    let broken = seen::RST | seen::BROKEN;
    for family in EVERY {
        let taken = |act: &dyn Fn(&Client<'_>, SocketAddr)| {
            let world = family.world(2);
            let client = family.client(&world);
            let endpoint = client.connects();
            world.pass(300);
            is_offered(&client, endpoint);
            client.sends(tcp(flags::ACK, SYN + 1, OFFER + 1)).unwrap();
            act(&client, endpoint);
            let inside = client.inside(endpoint, TCP);
            let inside = world.maps(|maps| maps.track.get(&inside)).unwrap();
            (client.noted(), inside.seen())
        };
        let sends = |client: &Client<'_>, payload| assert!(client.sends(payload).is_ok());
        // What it sent, whatever of it the endpoint has, and whatever is sent again.
        let follows = taken(&|client, _| {
            for begins in [SYN + 1, SYN + 10, SYN + 1] {
                sends(client, nine(begins));
            }
            sends(client, tcp(flags::RST, SYN + 19, 0));
        });
        assert_eq!(follows, (broken, 0));
        // What was lost on its way here.
        let near = taken(&|client, _| sends(client, tcp(flags::RST, SYN + 2, 0)));
        assert_eq!(near, (seen::RST, 0));
        let near = taken(&|client, endpoint| {
            let breaks = answer(flags::RST, OFFER + 2, 0);
            client.hears(endpoint, breaks).unwrap();
        });
        assert_eq!(near, (0, seen::RST));
    }
}

#[test]
fn what_only_the_client_says_changes_nothing() {
    for family in EVERY {
        let world = family.world(2);
        let client = family.client(&world);
        let endpoint = client.connects();
        world.pass(300);
        // Whoever it is: nothing was offered.
        client.sends(tcp(flags::SYN, SYN, 0)).unwrap();
        client.sends(tcp(flags::ACK, SYN + 1, 0)).unwrap();
        client.sends(tcp(flags::RST, SYN + 1, 0)).unwrap();
        client.hears(endpoint, data()).unwrap();
        world.pass(300);
        assert!(!client.is_swept());
    }
}

#[test]
fn what_only_the_endpoint_says_changes_nothing() {
    for family in EVERY {
        for (begins, acknowledges) in [
            (SYN + 1, OFFER),
            (SYN + 1, OFFER + 2),
            (SYN + 1, 0),
            (SYN, OFFER + 1),
            (SYN + 2, OFFER + 1),
        ] {
            let world = family.world(2);
            let client = family.client(&world);
            let endpoint = client.connects();
            world.pass(300);
            // A firewall answers every SYN, and the client is not the one who sent this.
            is_offered(&client, endpoint);
            client.sends(tcp(flags::ACK, begins, acknowledges)).unwrap();
            for refuses in [flags::RST, flags::RST | flags::ACK] {
                client.sends(tcp(refuses, SYN + 1, OFFER + 1)).unwrap();
            }
            client.hears(endpoint, data()).unwrap();
            world.pass(300);
            assert!(!client.is_swept(), "{begins} {acknowledges}");
            assert_eq!(client.sends(data()), Ok(endpoint));
            // Nor is anything lost of what was known.
            let broken = answer(flags::RST, BEGIN + 1 + 9, 0);
            client.hears(endpoint, broken).unwrap();
            family.lead_without(&world, 2, endpoint);
            assert_ne!(client.connects(), endpoint, "{begins} {acknowledges}");
        }
    }
}

#[test]
fn an_endpoint_that_answers_another_syn_offers_nothing() {
    for family in EVERY {
        let world = family.world(2);
        let client = family.client(&world);
        let endpoint = client.connects();
        // Nothing was asked, or something else.
        for asked in [None, Some(SYN + 9)] {
            if let Some(sequence) = asked {
                client.sends(tcp(flags::SYN, sequence, 0)).unwrap();
            }
            let offer = tcp(flags::SYN | flags::ACK, OFFER, SYN + 1);
            client.hears(endpoint, offer).unwrap();
            let inside = client.inside(endpoint, TCP);
            let value = world.maps(|maps| maps.track.get(&inside)).unwrap();
            assert_eq!(value.refusal, 0);
        }
    }
}
