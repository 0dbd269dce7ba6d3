//! Packets with a client's address that somebody else sends: they do not end its connections.

use super::{
    EVERY,
    journey::{BEGIN, ack, acked, data, fin, fin_too, rst, syn, taken, tcp},
};
use crate::{in_memory::Payload, packet::parse::flags, socket::TCP, track::seen};

/// What the endpoint expects of the client, once they are connected.
const EXPECTED: u32 = 1001;
/// Numbers that somebody may guess who is not on the way: none of a window.
const GUESSES: [u32; 6] = [
    0,
    EXPECTED - 1,
    EXPECTED + (1 << 23),
    EXPECTED + (1 << 30),
    EXPECTED ^ (1 << 31),
    u32::MAX,
];

#[test]
fn what_is_guessed_says_nothing_of_a_connection() {
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        let endpoint = client.connects();
        for guess in GUESSES {
            for end in [flags::RST, flags::RST | flags::ACK, flags::FIN | flags::ACK] {
                assert_eq!(client.sends(tcp(end, guess, BEGIN + 1)), Ok(endpoint));
                assert_eq!(client.noted(), 0, "{end} {guess}");
            }
            // Nor does a SYN behind it.
            assert_eq!(client.sends(tcp(flags::SYN, guess, 0)), Ok(endpoint));
            assert_eq!(client.hears(endpoint, ack()), Ok(()));
        }
        // Idle for longer than a closed, broken or half closed one is remembered.
        world.pass(7200);
        assert!(!client.is_swept());
        assert_eq!(client.sends(data()), Ok(endpoint));
        assert_eq!(client.hears(endpoint, data()), Ok(()));
    }
}

#[test]
fn what_is_near_ends_an_idle_connection_and_makes_room_for_no_other() {
    let family = EVERY[0];
    for (ahead, expected, stays) in [
        (1, seen::RST, 5),
        (1 << 16, seen::RST, 5),
        ((1 << 16) + 1, seen::FIN | seen::GUESSED, 300),
        ((1 << 23) - 1, seen::FIN | seen::GUESSED, 300),
    ] {
        let world = family.world(2);
        let client = family.client(&world);
        let endpoint = client.connects();
        world.pass(3);
        let broken = tcp(flags::RST, EXPECTED + ahead, 0);
        client.sends(broken.clone()).unwrap();
        assert_eq!(client.noted(), expected, "{ahead}");
        world.pass(stays);
        assert!(!client.is_swept(), "{ahead}");
        // The endpoint has it still.
        assert_eq!(client.sends(syn()), Ok(endpoint));
        client.sends(broken).unwrap();
        world.pass(stays + 1);
        assert!(client.is_swept(), "{ahead}");
    }
}

#[test]
fn what_the_endpoint_expects_is_what_it_acknowledged_last() {
    let family = EVERY[0];
    // Over the end of all numbers, too.
    for expected in [EXPECTED + 5000, 1 << 31, u32::MAX, 7] {
        let world = family.world(2);
        let client = family.client(&world);
        let endpoint = client.connects();
        client
            .hears(endpoint, tcp(flags::ACK, expected, BEGIN + 1))
            .unwrap();
        client
            .sends(tcp(flags::RST, expected.wrapping_sub(1), 0))
            .unwrap();
        assert_eq!(client.noted(), 0, "{expected}");
        // An endpoint that breaks what it does not know repeats what somebody wrote.
        client
            .hears(
                endpoint,
                tcp(flags::RST | flags::ACK, expected.wrapping_add(92), 0),
            )
            .unwrap();
        client
            .sends(tcp(flags::RST, expected.wrapping_add(92), 0))
            .unwrap();
        assert_eq!(client.noted(), seen::RST, "{expected}");
        client.sends(tcp(flags::RST, expected, 0)).unwrap();
        assert_eq!(client.noted(), seen::RST | seen::BROKEN, "{expected}");
    }
}

#[test]
fn what_is_broken_beyond_doubt_stays_so() {
    for family in EVERY {
        let world = family.world(2);
        let client = family.client(&world);
        let endpoint = client.connects();
        assert_eq!(client.sends(rst()), Ok(endpoint));
        // Anybody can send such, and a client that hears an answer which it does not expect does.
        for said in [flags::ACK, flags::RST, flags::RST | flags::ACK] {
            assert_eq!(client.sends(tcp(said, 123_456, 999)), Ok(endpoint));
            assert_eq!(client.noted(), seen::RST | seen::BROKEN);
        }
        family.lead_without(&world, 2, endpoint);
        assert_ne!(client.connects(), endpoint);
    }
}

#[test]
fn a_client_that_is_done_is_believed_with_data_on_its_way() {
    let family = EVERY[0];
    let world = family.world(2);
    let client = family.client(&world);
    client.connects();
    client
        .sends(tcp(
            flags::FIN | flags::ACK,
            EXPECTED + 1_000_000,
            BEGIN + 1,
        ))
        .unwrap();
    assert_eq!(client.noted(), seen::FIN | seen::GUESSED);
}

#[test]
fn a_first_packet_ends_no_connection_to_an_endpoint_that_is_drained() {
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        let endpoint = client.connects();
        family.lead_without(&world, 3, endpoint);
        for wait in [0, 1, 2, 30, 3600] {
            world.pass(wait);
            // Whether the endpoint says that it has the connection, or never got the packet.
            assert_eq!(client.sends(tcp(flags::SYN, 77, 0)), Ok(endpoint));
        }
        assert_eq!(client.sends(data()), Ok(endpoint));
        assert_eq!(client.hears(endpoint, data()), Ok(()));
        // It breaks the connection: with its word the next one begins.
        client.hears(endpoint, rst()).unwrap();
        assert_ne!(client.connects(), endpoint);
    }
}

#[test]
fn what_seems_to_be_the_end_of_a_client_that_goes_on_makes_room_for_nobody() {
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        let endpoint = client.connects();
        // The endpoint is done, and goes on listening.
        client.hears(endpoint, fin()).unwrap();
        let near = EXPECTED + 4_000_000;
        client
            .sends(tcp(flags::FIN | flags::ACK, near, BEGIN + 2))
            .unwrap();
        client.sends(data()).unwrap();
        client
            .hears(endpoint, tcp(flags::ACK, EXPECTED + 9, BEGIN + 2))
            .unwrap();
        assert_eq!(client.sends(tcp(flags::SYN, 77, 0)), Ok(endpoint));
        // Not even to an endpoint that is drained, as long as that says anything.
        family.lead_without(&world, 3, endpoint);
        assert_eq!(client.sends(tcp(flags::SYN, 77, 0)), Ok(endpoint));
        world.pass(300);
        assert!(!client.is_swept());
        assert_eq!(client.sends(data()), Ok(endpoint));
    }
}

#[test]
fn a_connection_that_only_seems_to_be_over_keeps_its_place_at_a_member() {
    let family = EVERY[0];
    let world = family.world(3);
    let client = family.client(&world);
    let endpoint = client.connects();
    client.hears(endpoint, fin()).unwrap();
    client
        .sends(tcp(flags::FIN | flags::ACK, EXPECTED + 9, BEGIN + 2))
        .unwrap();
    let serial = || world.maps(|maps| maps.track.get(&client.key(TCP)).map(|one| one.serial));
    let before = serial();
    world.pass(60);
    assert_eq!(client.sends(syn()), Ok(endpoint));
    assert_eq!(serial(), before);
}

#[test]
fn a_last_packet_with_data_is_acknowledged_as_a_whole() {
    let family = EVERY[0];
    let world = family.world(2);
    let client = family.client(&world);
    let endpoint = client.connects();
    let last = b"the end".to_vec();
    let behind = EXPECTED + 8;
    client
        .sends(Payload::Tcp(
            flags::FIN | flags::ACK,
            EXPECTED,
            BEGIN + 1,
            last,
        ))
        .unwrap();
    client
        .hears(endpoint, tcp(flags::FIN | flags::ACK, behind, BEGIN + 1))
        .unwrap();
    world.pass(11);
    assert!(client.is_swept());
}

#[test]
fn nobody_takes_room_who_guesses_how_an_endpoint_began_that_began_twice() {
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        let endpoint = client.sends(syn()).unwrap();
        client.hears(endpoint, taken()).unwrap();
        client.sends(tcp(flags::RST, 1001, 0)).unwrap();
        client.sends(tcp(flags::SYN, 77_777_777, 0)).unwrap();
        client
            .hears(
                endpoint,
                tcp(flags::SYN | flags::ACK, BEGIN + 900, 77_777_778),
            )
            .unwrap();
        for guess in [12_345, BEGIN, BEGIN + 2, BEGIN + 900, BEGIN + 902] {
            client.sends(tcp(flags::ACK, 77_777_778, guess)).unwrap();
        }
        assert_eq!(world.maps(|maps| maps.flows), 0);
        client
            .sends(tcp(flags::ACK, 77_777_778, BEGIN + 901))
            .unwrap();
        let dialled = world.maps(|maps| maps.track.get(&client.key(TCP)));
        assert_eq!(dialled.unwrap().sequence, 77_777_778);
    }
}

#[test]
fn the_true_end_of_a_connection_is_seen_at_once() {
    for family in EVERY {
        let world = family.world(2);
        let client = family.client(&world);
        let endpoint = client.connects();
        family.lead_without(&world, 2, endpoint);
        client.sends(data()).unwrap();
        client.hears(endpoint, taken()).unwrap();
        client.sends(rst()).unwrap();
        assert_ne!(client.connects(), endpoint);
        let other = client.connects();
        client.sends(fin()).unwrap();
        client.hears(other, fin_too()).unwrap();
        world.pass(11);
        assert!(client.is_swept());
    }
}

#[test]
fn an_end_that_the_endpoint_acknowledged_is_not_replaced_by_another() {
    for family in EVERY {
        // The endpoint is done as well, or goes on for a while.
        for is_done in [true, false] {
            let world = family.world(2);
            let client = family.client(&world);
            let endpoint = client.connects();
            client.sends(fin()).unwrap();
            let answer = if is_done { fin_too() } else { acked() };
            client.hears(endpoint, answer).unwrap();
            for ahead in [2, 1000, (1 << 23) - 2] {
                let forged = tcp(flags::FIN | flags::ACK, EXPECTED + ahead, BEGIN + 1);
                client.sends(forged).unwrap();
            }
            if !is_done {
                client.hears(endpoint, fin_too()).unwrap();
            }
            world.pass(11);
            assert!(client.is_swept(), "{is_done}");
        }
    }
}
