//! Clients that talk to an endpoint itself, from the port from which they dial a frontend.

use super::{
    EVERY,
    journey::{BEGIN, ack, acked_last, data, fin, fin_too, rst, syn, taken, tcp},
};
use crate::{
    packet::parse::flags,
    socket::TCP,
    track::reason::{Outcome, Reason},
};

const DIRECTLY: Outcome = Outcome::passed(Reason::Direct);
const BENEATH: Outcome = Outcome::passed(Reason::Beneath);

#[test]
fn a_syn_that_an_endpoint_objects_to_is_left_to_the_layer_beneath_when_it_is_sent_again() {
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        let endpoint = client.sends(syn()).unwrap();
        // What it has to say on the connection that it has anyway is nothing about this one.
        assert_eq!(client.hears(endpoint, data()), Err(Outcome::UNTOUCHED));
        // Nor is a late packet of an earlier one.
        assert_eq!(client.hears(endpoint, ack()), Err(Outcome::UNTOUCHED));
        world.pass(1);
        assert_eq!(client.hears(endpoint, data()), Err(Outcome::UNTOUCHED));
        assert_eq!(client.sends(syn()), Ok(endpoint));
        // This is (RFC 5961).
        assert_eq!(client.hears(endpoint, ack()), Err(DIRECTLY));
        assert_eq!(client.sends(syn()), Err(BENEATH));
        assert_eq!(client.hears(endpoint, ack()), Err(Outcome::UNTOUCHED));
        // Nor is the answer to a packet of the layer beneath changed.
        assert_eq!(client.hears(endpoint, taken()), Err(Outcome::UNTOUCHED));
        let inside = client.inside(endpoint, TCP);
        world.maps(|maps| assert_eq!(maps.opening.get(&inside), None));
    }
}

#[test]
fn an_endpoint_that_still_has_the_connection_before_is_heard() {
    for family in EVERY {
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = client.connects();
        // The endpoint closes, and misses that the client then breaks the connection.
        let closes = || client.hears(endpoint, tcp(flags::ACK | flags::FIN, 1001, BEGIN + 1));
        assert_eq!(closes(), Ok(()));
        let broken = tcp(flags::ACK | flags::RST, 1001, BEGIN + 2);
        assert_eq!(client.sends(broken), Ok(endpoint));
        let again = || client.sends(tcp(flags::SYN, 900_000, 0));
        assert_eq!(again(), Ok(endpoint));
        // The client hears that, so that it breaks what it knows nothing of, and sends its SYN again at
        // once (RFC 9293 section 3.5.1).
        let objection = tcp(flags::ACK, 1001, BEGIN + 2);
        assert_eq!(client.hears(endpoint, objection.clone()), Ok(()));
        let breaks = tcp(flags::RST, 1001, 0);
        assert_eq!(client.sends(breaks), Ok(endpoint));
        assert_eq!(again(), Ok(endpoint));
        let took = tcp(flags::SYN | flags::ACK, BEGIN, 900_001);
        assert_eq!(client.hears(endpoint, took), Ok(()));
        assert_eq!(
            client.sends(tcp(flags::ACK, 900_001, BEGIN + 1)),
            Ok(endpoint)
        );
        // Of the connection before, that is: this one has gone on.
        assert_eq!(client.hears(endpoint, objection), Ok(()));
        world.maps(|maps| assert_eq!((maps.halves().len(), maps.flows), (0, family.counts())));
    }
}

#[test]
fn an_endpoint_that_goes_on_objecting_has_another_connection() {
    for family in EVERY {
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = client.connects();
        assert_eq!(client.sends(rst()), Ok(endpoint));
        assert_eq!(client.sends(syn()), Ok(endpoint));
        assert_eq!(client.hears(endpoint, ack()), Ok(()));
        // The clock may have been read just before a second was over.
        world.pass(1);
        assert_eq!(client.hears(endpoint, ack()), Ok(()));
        world.pass(1);
        assert_eq!(client.sends(syn()), Ok(endpoint));
        assert_eq!(client.hears(endpoint, ack()), Err(DIRECTLY));
    }
}

#[test]
fn a_connection_to_another_endpoint_before_is_none_that_this_one_may_object_for() {
    for family in EVERY {
        let world = family.world(2);
        let client = family.client(&world);
        let before = client.connects();
        assert_eq!(client.sends(rst()), Ok(before));
        family.lead_without(&world, 2, before);
        let endpoint = client.sends(syn()).unwrap();
        assert_ne!(endpoint, before);
        assert_eq!(client.hears(endpoint, ack()), Err(Outcome::UNTOUCHED));
    }
}

#[test]
fn an_endpoint_that_has_answered_may_acknowledge() {
    for family in EVERY {
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = client.sends(syn()).unwrap();
        assert_eq!(client.hears(endpoint, taken()), Ok(()));
        world.pass(1);
        assert_eq!(client.hears(endpoint, ack()), Err(Outcome::UNTOUCHED));
        assert_eq!(client.sends(ack()), Ok(endpoint));
        assert_eq!(client.hears(endpoint, ack()), Ok(()));
    }
}

/// The client's SYN to the endpoint itself, with a number of its own.
const ITSELF: u32 = 70_000;

#[test]
fn a_connection_to_the_endpoint_itself_comes_about_after_one_through_a_frontend() {
    for family in EVERY {
        for breaks in [false, true] {
            let world = family.world(1);
            let client = family.client(&world);
            let endpoint = client.connects();
            if breaks {
                client.sends(rst()).unwrap();
            } else {
                client.sends(fin()).unwrap();
                client.hears(endpoint, fin_too()).unwrap();
                client.sends(acked_last()).unwrap();
            }
            let itself = client.itself(endpoint);
            let opens = tcp(flags::SYN, ITSELF, 0);
            assert_eq!(itself.sends(opens), Err(Outcome::UNTOUCHED));
            let took = tcp(flags::SYN | flags::ACK, 9, ITSELF + 1);
            assert_eq!(client.hears(endpoint, took), Err(Outcome::UNTOUCHED));
            assert_eq!(client.hears(endpoint, data()), Err(Outcome::UNTOUCHED));
            world.maps(|maps| assert_eq!((maps.flows, maps.track.keys().len()), (0, 0)));
        }
    }
}

#[test]
fn a_syn_to_the_endpoint_itself_ends_no_connection() {
    for family in EVERY {
        let world = family.world(2);
        let client = family.client(&world);
        let endpoint = client.connects();
        let itself = client.itself(endpoint);
        // Anybody can send it.
        let opens = tcp(flags::SYN, ITSELF, 0);
        assert_eq!(itself.sends(opens), Err(Outcome::UNTOUCHED));
        assert_eq!(client.sends(data()), Ok(endpoint));
        assert_eq!(client.hears(endpoint, data()), Ok(()));
        assert_eq!(world.maps(|maps| maps.flows), family.counts());
    }
}

#[test]
fn a_syn_to_a_frontend_takes_nothing_from_a_connection_to_the_endpoint_itself() {
    for family in EVERY {
        let world = family.world(1);
        let client = family.client(&world);
        // Forged, or of a client that went away.
        let endpoint = client.sends(syn()).unwrap();
        let own = [
            tcp(flags::SYN | flags::ACK, ITSELF + 1, 9),
            tcp(flags::RST | flags::ACK, 10, ITSELF + 9),
            tcp(flags::RST, 10, 0),
            tcp(flags::SYN, 10, 0),
        ];
        for said in own.clone() {
            assert_eq!(client.hears(endpoint, said), Err(Outcome::UNTOUCHED));
        }
        assert_eq!(client.hears(endpoint, taken()), Ok(()));
        for said in own {
            assert_eq!(client.hears(endpoint, said), Err(Outcome::UNTOUCHED));
        }
        assert_eq!(client.sends(ack()), Ok(endpoint));
    }
}

#[test]
fn each_syn_may_be_answered_that_was_sent_with_a_number_of_its_own() {
    for family in EVERY {
        for answered in [1001, ITSELF + 1] {
            let world = family.world(1);
            let client = family.client(&world);
            let endpoint = client.sends(syn()).unwrap();
            let again = tcp(flags::SYN, ITSELF, 0);
            assert_eq!(client.sends(again), Ok(endpoint));
            let took = tcp(flags::SYN | flags::ACK, BEGIN, answered);
            assert_eq!(client.hears(endpoint, took), Ok(()));
        }
    }
}

#[test]
fn a_connection_that_earlier_programs_began_comes_about() {
    let family = EVERY[0];
    let world = family.world(1);
    let client = family.client(&world);
    let endpoint = client.sends(syn()).unwrap();
    world.maps(|maps| {
        let inside = client.inside(endpoint, TCP);
        let (at, _) = maps.opening.find(&inside).unwrap();
        // They did not note it.
        maps.opening
            .write(at, |value| (value.acknowledged, value.refusal) = (0, 0));
    });
    assert_eq!(client.hears(endpoint, taken()), Ok(()));
    assert_eq!(client.hears(endpoint, ack()), Err(Outcome::UNTOUCHED));
    assert_eq!(client.sends(ack()), Ok(endpoint));
}

#[test]
fn an_endpoint_that_still_has_the_syn_before_is_heard() {
    for family in EVERY {
        let world = family.world(1);
        let client = family.client(&world);
        // Its client never heard that.
        let endpoint = client.sends(syn()).unwrap();
        assert_eq!(client.hears(endpoint, taken()), Ok(()));
        world.pass(8);
        let again = || client.sends(tcp(flags::SYN, ITSELF, 0));
        assert_eq!(again(), Ok(endpoint));
        assert_eq!(client.hears(endpoint, ack()), Ok(()));
        assert_eq!(client.sends(tcp(flags::RST, 1001, 0)), Ok(endpoint));
        assert_eq!(again(), Ok(endpoint));
        let took = tcp(flags::SYN | flags::ACK, 9, ITSELF + 1);
        assert_eq!(client.hears(endpoint, took), Ok(()));
        assert_eq!(client.sends(tcp(flags::ACK, ITSELF + 1, 10)), Ok(endpoint));
        world.maps(|maps| assert_eq!((maps.halves().len(), maps.flows), (0, family.counts())));
    }
}

#[test]
fn an_endpoint_that_answered_long_ago_may_have_another_connection_since() {
    for family in EVERY {
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = client.sends(syn()).unwrap();
        assert_eq!(client.hears(endpoint, taken()), Ok(()));
        world.pass(8);
        assert_eq!(client.sends(tcp(flags::SYN, 900_000, 0)), Ok(endpoint));
        let objects = tcp(flags::ACK, ITSELF + 9, 77);
        assert_eq!(client.hears(endpoint, objects), Err(DIRECTLY));
        assert_eq!(client.sends(tcp(flags::SYN, 900_000, 0)), Err(BENEATH));
    }
}

#[test]
fn a_handshake_goes_on_whatever_was_forged_before_and_meanwhile() {
    for family in EVERY {
        let world = family.world(1);
        let client = family.client(&world);
        let forges = |number| client.sends(tcp(flags::SYN, number, 0)).unwrap();
        forges(50_000);
        world.pass(2);
        let endpoint = client.sends(syn()).unwrap();
        assert_eq!(client.hears(endpoint, taken()), Ok(()));
        forges(90_000);
        // What it says to that.
        assert_eq!(client.hears(endpoint, ack()), Err(Outcome::UNTOUCHED));
        assert_eq!(client.sends(ack()), Ok(endpoint));
        assert_eq!(client.hears(endpoint, data()), Ok(()));
    }
}
