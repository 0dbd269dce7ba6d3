//! Packets from one client's port to two frontends, on two CPUs: behind the translation they must
//! not look the same, whatever the order.

use std::vec::Vec;

use super::{
    EVERY, World,
    journey::{Went, ack, datagram, syn, taken},
    orders::{Act, Became, comes, in_every_order, leaves, went},
};
use crate::{
    in_memory::Payload,
    socket::{TCP, UDP},
    track::reason::{Outcome, Reason},
};

fn collides() -> Went {
    Err(Outcome::passed(Reason::Collision))
}

/// Both frontends are dialled at once. Returns how often each was served, and how many orders.
fn both_dialled(endpoints: usize, payload: &Payload, check: impl Fn(&World, [Went; 2])) -> usize {
    let family = EVERY[0];
    let world = family.world(endpoints);
    let acts = [
        comes(&family.client(&world), payload.clone()),
        comes(&family.second(&world), payload.clone()),
    ];
    in_every_order(world, &acts, |world, became: &[Became]| {
        check(world, [went(&became[0]), went(&became[1])]);
    })
}

#[test]
fn of_two_frontends_with_one_endpoint_one_is_left_to_the_layer_beneath() {
    for payload in [syn(), datagram()] {
        let orders = both_dialled(1, &payload, |world, went| {
            assert!(went.contains(&collides()), "{went:?}");
            assert!(went.iter().any(Result::is_ok), "{went:?}");
            // It stays so.
            let clients = [EVERY[0].client(world), EVERY[0].second(world)];
            for (client, went) in clients.iter().zip(went) {
                let stays = went.map_err(|_| Outcome::passed(Reason::Beneath));
                assert_eq!(client.sends(payload.clone()), stays);
            }
        });
        assert!(orders > 2, "{orders}");
    }
}

#[test]
fn two_frontends_with_two_endpoints_lead_to_one_each() {
    for payload in [syn(), datagram()] {
        both_dialled(2, &payload, |_, went| {
            let endpoints: Vec<_> = went.iter().flatten().collect();
            assert_eq!(endpoints.len(), 2, "{went:?}");
            assert_ne!(endpoints[0], endpoints[1]);
        });
    }
}

#[test]
fn a_frontend_never_takes_the_place_of_a_flow_that_is_being_answered() {
    for evicted in [false, true] {
        let family = EVERY[0];
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = client.sends(syn()).unwrap();
        client.hears(endpoint, taken()).unwrap();
        if evicted {
            world.maps(|maps| maps.opening.remove(&client.key(TCP)));
            client.hears(endpoint, taken()).unwrap();
        }
        let acts = [comes(&client, ack()), comes(&family.second(&world), syn())];
        in_every_order(world, &acts, |world, became| {
            assert_eq!(went(&became[0]), Ok(endpoint));
            assert_eq!(went(&became[1]), collides());
            let client = family.client(world);
            assert_eq!(client.hears(endpoint, ack()), Ok(()));
            world.maps(|maps| assert_eq!((maps.flows, maps.halves()), (1, Vec::new())));
        });
    }
}

#[test]
fn of_two_flows_that_claim_one_place_one_gives_way() {
    // The first flow lost its place to eviction, and its client goes on just when the second
    // frontend is dialled.
    let family = EVERY[0];
    let world = family.world(1);
    let client = family.client(&world);
    let endpoint = client.sends(syn()).unwrap();
    world.maps(|maps| maps.opening.remove(&client.inside(endpoint, TCP)));
    let acts = [comes(&client, syn()), comes(&family.second(&world), syn())];
    in_every_order(world, &acts, |world, _| {
        world.pass(1);
        let again = [family.client(world), family.second(world)].map(|one| one.sends(syn()));
        assert_eq!(
            again.iter().filter(|went| went.is_ok()).count(),
            1,
            "{again:?}"
        );
    });
}

#[test]
fn of_two_flows_that_are_answered_at_once_one_has_the_place() {
    // The place of the first one is evicted and given to the other one just when the client makes the
    // first one an answered flow.
    for payloads in [
        [syn(), taken(), ack()],
        [datagram(), datagram(), datagram()],
    ] {
        let family = EVERY[0];
        let world = family.world(1);
        let (client, second) = (family.client(&world), family.second(&world));
        let [begins, answers, goes_on] = payloads;
        let endpoint = client.sends(begins.clone()).unwrap();
        client.hears(endpoint, answers.clone()).unwrap();
        let protocol = if begins == syn() { TCP } else { UDP };
        let answer = leaves(&second, endpoint, answers);
        let mut other = std::vec![
            Act::Evicts(client.inside(endpoint, protocol)),
            comes(&second, begins.clone()),
            answer.clone(),
            comes(&second, goes_on.clone()),
        ];
        let first = if protocol == TCP {
            comes(&client, goes_on.clone())
        } else {
            other.push(answer.clone());
            answer
        };
        in_every_order(world, &[first, Act::Each(other)], |world, _| {
            world.maps(|maps| assert_eq!(maps.halves(), []));
            let clients = [family.client(world), family.second(world)];
            let to = clients.map(|one| {
                world.pass(1);
                let went = one.sends(goes_on.clone());
                // Whoever is served hears its answers from whom it dialled.
                assert!(went != Ok(endpoint) || one.hears(endpoint, goes_on.clone()) == Ok(()));
                went
            });
            assert_eq!(to.iter().filter(|went| went.is_ok()).count(), 1, "{to:?}");
            world.maps(|maps| assert_eq!((maps.flows, maps.halves()), (1, Vec::new())));
        });
    }
}
