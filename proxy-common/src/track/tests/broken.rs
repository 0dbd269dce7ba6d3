//! Clients that break connections while what they sent is on its way.

use std::{net::SocketAddr, vec};

use super::{
    Client, EVERY, Family, World,
    journey::{BEGIN, ack, data, fin, syn, taken, tcp},
};
use crate::{
    in_memory::Payload,
    packet::parse::flags,
    track::{reason::Outcome, seen},
};

/// What a client sends first, once it is connected.
const FIRST: u32 = 1001;
/// So much is on its way: more than a window without scaling.
const LARGE: u32 = 1 << 20;

/// Data of the client that begins with this number.
fn from(sequence: u32, length: u32) -> Payload {
    let data = vec![0; usize::try_from(length).unwrap()];
    Payload::Tcp(flags::ACK, sequence, BEGIN + 1, data)
}

/// Sends `length` bytes in packets, without a gap, and returns the next number.
fn upload(client: &Client<'_>, first: u32, length: u32) -> u32 {
    const PACKET: u32 = 1 << 12;
    let numbers = (0..length / PACKET).map(|index| first.wrapping_add(index * PACKET));
    for sequence in numbers {
        client.sends(from(sequence, PACKET)).unwrap();
    }
    first.wrapping_add(length)
}

fn acknowledges(client: &Client<'_>, endpoint: SocketAddr, sequence: u32) {
    let acknowledged = tcp(flags::ACK, sequence, BEGIN + 1);
    client.hears(endpoint, acknowledged).unwrap();
}

/// Whether its next connection is led anew, though its endpoint takes no new ones.
fn begins_anew(family: Family, world: &World, client: &Client<'_>, endpoint: SocketAddr) -> bool {
    family.lead_without(world, 2, endpoint);
    client.sends(syn()) != Ok(endpoint)
}

#[test]
fn who_breaks_a_connection_by_the_next_number_is_believed_whatever_is_acknowledged() {
    for family in EVERY {
        for acknowledged in [None, Some(FIRST), Some(FIRST + LARGE / 2)] {
            let world = family.world(2);
            let client = family.client(&world);
            let endpoint = client.connects();
            let next = upload(&client, FIRST, LARGE);
            if let Some(acknowledged) = acknowledged {
                acknowledges(&client, endpoint, acknowledged);
            }
            // Sent again, out of order, or by itself: none of it moves what follows.
            client.sends(from(FIRST, 9)).unwrap();
            client.sends(ack()).unwrap();
            client.sends(tcp(flags::RST, next, 0)).unwrap();
            assert_eq!(client.noted(), seen::RST | seen::BROKEN);
            assert!(begins_anew(family, &world, &client, endpoint));
        }
    }
}

#[test]
fn what_follows_a_gap_is_believed_once_there_is_none() {
    let family = EVERY[0];
    let world = family.world(2);
    let client = family.client(&world);
    let endpoint = client.connects();
    let lost = FIRST + 1000;
    let next = upload(&client, lost, LARGE);
    client.sends(tcp(flags::RST, next, 0)).unwrap();
    assert_eq!(client.noted() & seen::BROKEN, 0);
    // It was none of the client's, which goes on: sends again what was lost, and has its answer.
    client.sends(from(FIRST, 1000)).unwrap();
    acknowledges(&client, endpoint, next);
    world.pass(1);
    let next = upload(&client, next, LARGE);
    // The first packet of a second finds out, and counts itself.
    client.sends(tcp(flags::RST, next, 0)).unwrap();
    assert_eq!(client.noted(), seen::RST | seen::BROKEN);
}

#[test]
fn who_guesses_moves_nothing() {
    for family in EVERY {
        for forged in [
            from(FIRST + 1, 100),
            from(FIRST - 1, 100),
            from(FIRST + LARGE, 100),
            tcp(flags::FIN | flags::ACK, FIRST + LARGE, BEGIN + 1),
        ] {
            let world = family.world(2);
            let client = family.client(&world);
            let endpoint = client.connects();
            world.pass(3);
            client.sends(forged.clone()).unwrap();
            let Payload::Tcp(said, sequence, _, data) = forged else {
                unreachable!("all are of TCP");
            };
            let fin = u32::from(said & flags::FIN != 0);
            let behind = sequence + u32::try_from(data.len()).unwrap() + fin;
            client.sends(tcp(flags::RST, behind, 0)).unwrap();
            assert_eq!(client.noted() & seen::BROKEN, 0, "{sequence}");
            assert!(!begins_anew(family, &world, &client, endpoint));
        }
    }
}

#[test]
fn far_ahead_is_believed_while_data_is_on_its_way() {
    let family = EVERY[0];
    for (wait, expected) in [
        (0, seen::RST),
        (2, seen::RST),
        (3, seen::FIN | seen::GUESSED),
    ] {
        let world = family.world(2);
        let client = family.client(&world);
        let endpoint = client.connects();
        world.pass(60);
        acknowledges(&client, endpoint, FIRST + 100);
        world.pass(wait);
        // The same once more says nothing new.
        acknowledges(&client, endpoint, FIRST + 100);
        let far = FIRST + 100 + (1 << 22);
        client.sends(tcp(flags::RST, far, 0)).unwrap();
        assert_eq!(client.noted(), expected, "{wait}");
        // It may be forged: who goes on was not broken.
        client.sends(data()).unwrap();
        assert_eq!(client.noted() & seen::RST, 0);
    }
}

#[test]
fn a_port_is_free_once_the_endpoint_that_takes_no_new_ones_was_silent_for_long() {
    let family = EVERY[0];
    for speaks in [false, true] {
        let world = family.world(2);
        let client = family.client(&world);
        let endpoint = client.connects();
        client.sends(tcp(flags::RST, FIRST + 100, 0)).unwrap();
        assert!(!begins_anew(family, &world, &client, endpoint));
        world.pass(6);
        if speaks {
            client.hears(endpoint, taken()).unwrap();
        }
        assert_eq!(
            begins_anew(family, &world, &client, endpoint),
            !speaks,
            "{speaks}"
        );
    }
}

#[test]
fn an_end_in_place_of_the_acknowledgement_that_was_lost_is_seen() {
    for family in EVERY {
        let world = family.world(2);
        let client = family.client(&world);
        let endpoint = client.sends(syn()).unwrap();
        client.hears(endpoint, taken()).unwrap();
        client.sends(fin()).unwrap();
        assert_eq!(client.noted(), seen::FIN);
        client
            .hears(endpoint, tcp(flags::FIN | flags::ACK, FIRST + 1, BEGIN + 1))
            .unwrap();
        world.pass(11);
        assert!(client.is_swept());
    }
}

#[test]
fn a_packet_that_does_not_say_how_long_it_is_moves_nothing() {
    for (family, length) in EVERY.into_iter().zip([2..4, 4..6]) {
        let world = family.world(2);
        let client = family.client(&world);
        client.connects();
        // As of BIG TCP: more than its header can say.
        let mut packet = client.build(data()).bytes();
        packet.0[length].fill(0);
        assert_eq!(world.comes(&packet).0, Outcome::TRANSLATED);
        client.sends(data()).unwrap();
        client.sends(tcp(flags::RST, FIRST + 9, 0)).unwrap();
        assert_eq!(client.noted(), seen::RST | seen::BROKEN);
    }
}
