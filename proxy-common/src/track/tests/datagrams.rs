//! Flows of UDP, which nobody opens and nobody closes.

use super::{EVERY, journey::datagram};
use crate::{in_memory::programs::sweeps, socket::UDP, track::reason::Outcome};

#[test]
fn the_second_answer_makes_a_flow_an_answered_one() {
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        let endpoint = client.sends(datagram()).unwrap();
        // One answer is what a forged question gets.
        assert_eq!(client.hears(endpoint, datagram()), Ok(()));
        assert_eq!(client.sends(datagram()), Ok(endpoint));
        assert_eq!(world.maps(|maps| maps.flows), 0);
        assert_eq!(client.hears(endpoint, datagram()), Ok(()));
        world.maps(|maps| {
            assert_eq!((maps.flows, maps.halves().len()), (family.counts(), 0));
            assert_eq!(maps.track.keys().len(), family.entries(1));
            assert_eq!(maps.opening.keys(), []);
        });
        assert_eq!(client.sends(datagram()), Ok(endpoint));
        assert_eq!(client.hears(endpoint, datagram()), Ok(()));
    }
}

#[test]
fn what_an_endpoint_begins_after_a_question_that_went_unanswered_is_its_own() {
    for family in EVERY {
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = client.sends(datagram()).unwrap();
        world.pass(20);
        assert_eq!(client.sends(datagram()), Ok(endpoint));
        world.pass(20);
        assert_eq!(client.hears(endpoint, datagram()), Ok(()));
        world.pass(31);
        let own = client.hears(endpoint, datagram());
        assert_eq!(own, Err(Outcome::UNTOUCHED));
    }
}

#[test]
fn datagrams_leave_an_endpoint_that_is_removed() {
    for family in EVERY {
        for answered in [true, false] {
            let world = family.world(3);
            let client = family.client(&world);
            let endpoint = if answered {
                client.asks()
            } else {
                client.sends(datagram()).unwrap()
            };
            family.lead_without(&world, 3, endpoint);
            let other = client.sends(datagram()).unwrap();
            assert_ne!(other, endpoint);
            assert_eq!(client.hears(other, datagram()), Ok(()));
            assert_eq!(client.sends(datagram()), Ok(other));
            // The old flow is gone.
            world.maps(|maps| assert_eq!((maps.flows, maps.track.keys().len()), (0, 0)));
        }
    }
}

#[test]
fn datagrams_stay_with_their_endpoint_when_others_come() {
    for answered in [true, false] {
        let family = EVERY[0];
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = if answered {
            client.asks()
        } else {
            client.sends(datagram()).unwrap()
        };
        family.lead(&world, &[1, 2, 0]);
        for _ in 0..5 {
            assert_eq!(client.sends(datagram()), Ok(endpoint));
            world.pass(if answered { 120 } else { 30 });
        }
    }
}

#[test]
fn a_flow_that_was_idle_for_too_long_begins_anew() {
    for family in EVERY {
        for (answered, stays) in [(true, 120), (false, 30)] {
            let world = family.world(2);
            let client = family.client(&world);
            if answered {
                client.asks();
            } else {
                client.sends(datagram()).unwrap();
            }
            let (dialled, before) = (client.key(UDP), world.maps(|maps| maps.clone()));
            let serial = |maps: &mut super::maps::Maps| {
                let found = maps.track.get(&dialled).or(maps.opening.get(&dialled));
                found.unwrap().serial
            };
            world.pass(stays);
            client.sends(datagram()).unwrap();
            assert_eq!(world.maps(serial), serial(&mut before.clone()), "in time");
            world.pass(stays + 1);
            client.sends(datagram()).unwrap();
            assert_ne!(world.maps(serial), serial(&mut before.clone()), "too late");
            assert_eq!(world.maps(|maps| maps.flows), 0);
        }
    }
}

#[test]
fn a_flow_on_which_only_the_endpoint_speaks_is_not_idle() {
    let family = EVERY[0];
    let world = family.world(2);
    let client = family.client(&world);
    let endpoint = client.asks();
    for _ in 0..3 {
        world.pass(100);
        assert_eq!(client.hears(endpoint, datagram()), Ok(()));
    }
    // Others joined meanwhile: one that began anew would go to one of them.
    family.lead(&world, &[2, 1, 0]);
    assert!(!sweeps(&world.alone(), client.key(UDP)));
    let serial = |maps: &mut super::maps::Maps| maps.track.get(&client.key(UDP)).map(|v| v.serial);
    let before = world.maps(serial);
    assert_eq!(client.sends(datagram()), Ok(endpoint));
    assert_eq!(world.maps(serial), before);
}

#[test]
fn an_answer_to_a_question_that_nobody_asked_is_untouched() {
    for family in EVERY {
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = super::journey::at(family.endpoints[0]);
        let untouched = crate::track::reason::Outcome::UNTOUCHED;
        assert_eq!(client.hears(endpoint, datagram()), Err(untouched));
    }
}
