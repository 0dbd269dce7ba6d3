//! Datagrams in fragments: the first has the ports, the others follow it.

use std::{vec, vec::Vec};

use super::{
    EVERY,
    journey::{at, datagram, receiver},
};
use crate::{
    in_memory::{Build, Payload},
    socket::UDP,
    track::reason::{Outcome, Reason},
};

/// What is sent in two fragments.
fn long() -> Payload {
    Payload::Udp(vec![7; 64])
}

#[test]
fn later_fragments_follow_the_first_one_both_ways() {
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        let endpoint = client.asks();
        let request = client.build(long());
        let reached = Build {
            to: endpoint,
            ..request.clone()
        };
        let reply = Build {
            from: endpoint,
            to: client.from,
            ..request.clone()
        };
        let heard = Build {
            from: client.to,
            ..reply.clone()
        };
        for identification in [1, 2, 0xffff] {
            let sent = request.fragments(identification);
            let expected = reached.fragments(identification);
            for (sent, expected) in sent.iter().zip(&expected) {
                let became = world.comes(sent);
                assert_eq!(became, (Outcome::TRANSLATED, expected.clone()));
            }
            let sent = reply.fragments(identification);
            let expected = heard.fragments(identification);
            for (sent, expected) in sent.iter().zip(&expected) {
                let became = world.leaves(sent);
                assert_eq!(became, (Outcome::TRANSLATED, expected.clone()));
            }
        }
    }
}

#[test]
fn a_later_fragment_before_the_first_one_is_left_as_it_is_and_the_first_one_dropped() {
    let late = Outcome::dropped(Reason::Fragment);
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        let endpoint = client.asks();
        let request = client.build(long());
        let [first, later] = request.fragments(7);
        for _ in 0..2 {
            assert_eq!(world.comes(&later).0, Outcome::UNTOUCHED);
            assert_eq!(world.comes(&first).0, late);
            // Of the same datagram, one is gone.
            assert_eq!(world.comes(&later).0, Outcome::UNTOUCHED);
        }
        world.pass(1);
        assert_eq!(world.comes(&first).0, late);
        // The number is used again.
        world.pass(1);
        assert_eq!(world.comes(&first).0, Outcome::TRANSLATED);
        assert_eq!(world.comes(&later).0, Outcome::TRANSLATED);
        let reply = Build {
            from: endpoint,
            to: client.from,
            ..request
        };
        let [first, later] = reply.fragments(7);
        assert_eq!(world.leaves(&later).0, Outcome::UNTOUCHED);
        assert_eq!(world.leaves(&first).0, late);
        // Of other datagrams.
        let [first, later] = reply.fragments(8);
        assert_eq!(world.leaves(&first).0, Outcome::TRANSLATED);
        assert_eq!(world.leaves(&later).0, Outcome::TRANSLATED);
        assert_eq!(client.hears(endpoint, datagram()), Ok(()));
    }
}

#[test]
fn a_flow_that_begins_with_fragments_out_of_order_is_left_to_the_layer_beneath() {
    let family = EVERY[0];
    let world = family.world(3);
    let client = family.client(&world);
    let [first, later] = client.build(long()).fragments(7);
    assert_eq!(world.comes(&later).0, Outcome::UNTOUCHED);
    assert_eq!(world.comes(&first).0, Outcome::passed(Reason::Fragment));
    // There is its endpoint now.
    let beneath = Outcome::passed(Reason::Beneath);
    assert_eq!(client.sends(datagram()), Err(beneath));
    for fragment in client.build(long()).fragments(8) {
        assert_ne!(world.comes(&fragment).0, Outcome::TRANSLATED);
    }
}

#[test]
fn a_first_fragment_begins_a_flow_where_it_says_so_in_no_extension() {
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        let [first, later] = client.build(long()).fragments(7);
        let (began, after) = world.comes(&first);
        if family.client.starts_with('[') {
            assert_eq!(began, Outcome::passed(Reason::Options));
            assert_eq!(world.comes(&later).0, Outcome::UNTOUCHED);
        } else {
            assert_eq!(began, Outcome::TRANSLATED);
            assert_eq!(client.sends(datagram()), Ok(receiver(&after, 0)));
            assert_eq!(world.comes(&later).0, Outcome::TRANSLATED);
        }
    }
}

#[test]
fn fragments_of_what_is_left_to_the_layer_beneath_are_left_as_they_are() {
    for family in EVERY {
        let world = family.world(0);
        let client = family.client(&world);
        client.sends(datagram()).unwrap_err();
        let [first, later] = client.build(long()).fragments(7);
        assert_eq!(world.comes(&first).0, Outcome::passed(Reason::Beneath));
        assert_eq!(world.comes(&later).0, Outcome::UNTOUCHED);
    }
}

#[test]
fn a_first_fragment_is_not_believed_for_longer_than_a_host_waits_for_the_others() {
    for family in EVERY {
        let world = family.world(1);
        let client = family.client(&world);
        client.asks();
        let [first, later] = client.build(long()).fragments(7);
        assert_eq!(world.comes(&first).0, Outcome::TRANSLATED);
        world.pass(60);
        assert_eq!(world.comes(&later).0, Outcome::TRANSLATED);
        // The number is used again by then, maybe for what is not translated.
        world.pass(1);
        assert_eq!(world.comes(&later).0, Outcome::UNTOUCHED);
    }
}

#[test]
fn what_was_remembered_for_another_datagram_is_not_followed() {
    let family = EVERY[0];
    let world = family.world(1);
    let client = family.client(&world);
    client.asks();
    let [first, later] = client.build(long()).fragments(7);
    assert_eq!(world.comes(&first).0, Outcome::TRANSLATED);
    world.maps(|maps| {
        for value in maps.fragments.values_mut() {
            value.address = crate::address::from_ip(at(family.endpoints[1]).ip());
        }
    });
    assert_eq!(world.comes(&later).0, Outcome::UNTOUCHED);
    // Which protocol it is counts too.
    assert!(world.maps(|maps| maps.fragments.keys().all(|key| key.protocol == UDP)));
    let lengths: Vec<_> = [&first, &later].map(|one| one.0.len()).into();
    assert_eq!(lengths.len(), 2);
}
