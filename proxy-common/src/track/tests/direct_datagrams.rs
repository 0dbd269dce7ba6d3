//! Clients that send datagrams to an endpoint itself, from the port from which they ask a frontend.

use super::{
    Client, EVERY,
    journey::{at, datagram},
};
use crate::{
    socket::UDP,
    track::{
        DIRECT,
        reason::{Outcome, Reason},
    },
};

const DIRECTLY: Outcome = Outcome::passed(Reason::Direct);
const BENEATH: Outcome = Outcome::passed(Reason::Beneath);
const COLLISION: Outcome = Outcome::passed(Reason::Collision);

#[test]
fn datagrams_to_an_endpoint_itself_end_the_flow_that_looks_the_same() {
    for family in EVERY {
        for answered in [false, true] {
            let world = family.world(1);
            let client = family.client(&world);
            let endpoint = if answered {
                client.asks()
            } else {
                client.sends(datagram()).unwrap()
            };
            let itself = client.itself(endpoint);
            assert_eq!(itself.sends(datagram()), Err(DIRECTLY));
            // Answers are the endpoint's own from now on, and the frontend is served beneath.
            assert_eq!(client.hears(endpoint, datagram()), Err(Outcome::UNTOUCHED));
            assert_eq!(client.sends(datagram()), Err(COLLISION));
            assert_eq!(client.sends(datagram()), Err(BENEATH));
            assert_eq!(itself.sends(datagram()), Err(Outcome::UNTOUCHED));
            assert_eq!(client.hears(endpoint, datagram()), Err(Outcome::UNTOUCHED));
            world.maps(|maps| {
                assert_eq!((maps.flows, maps.track.keys().len()), (0, 0));
                let noted = maps.opening.get(&client.inside(endpoint, UDP)).unwrap();
                assert_eq!(noted.owner, DIRECT);
            });
        }
    }
}

#[test]
fn another_endpoint_is_as_good() {
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        let endpoint = client.asks();
        let itself = client.itself(endpoint);
        assert_eq!(itself.sends(datagram()), Err(DIRECTLY));
        let other = client.asks();
        assert_ne!(other, endpoint);
        assert_eq!(itself.sends(datagram()), Err(Outcome::UNTOUCHED));
        assert_eq!(client.sends(datagram()), Ok(other));
    }
}

#[test]
fn a_place_is_kept_as_long_as_datagrams_come() {
    let family = EVERY[0];
    let world = family.world(1);
    let client = family.client(&world);
    let endpoint = client.asks();
    let itself = client.itself(endpoint);
    let second = family.second(&world);
    assert_eq!(itself.sends(datagram()), Err(DIRECTLY));
    for _ in 0..3 {
        world.pass(100);
        assert_eq!(itself.sends(datagram()), Err(Outcome::UNTOUCHED));
    }
    assert_eq!(client.sends(datagram()), Err(COLLISION));
    world.pass(121);
    assert_eq!(second.asks(), endpoint);
}

#[test]
fn datagrams_for_nobody_are_untouched() {
    for family in EVERY {
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = client.asks();
        for (from, to) in [
            (at(family.client), at(family.router)),
            (at(family.router), endpoint),
        ] {
            let other = Client {
                world: &world,
                from,
                to,
            };
            assert_eq!(other.sends(datagram()), Err(Outcome::UNTOUCHED));
        }
        assert_eq!(client.sends(datagram()), Ok(endpoint));
    }
}
