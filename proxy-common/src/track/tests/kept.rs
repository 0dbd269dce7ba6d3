//! Clients outside that are led to the cluster set: to endpoints on this node, which see who they are.

use std::{collections::BTreeSet, net::SocketAddr};

use super::{
    BOTH, Client, Family, World,
    journey::{SET, at, data, datagram, syn},
};
use crate::{
    affinity::ClientKey,
    endpoint::ON_NODE,
    frontend::{MASQUERADED_ELSEWHERE, OUTSIDE_TO_CLUSTER, OUTSIDE_TO_LOCAL, RANGED},
    track::{
        LEAVING,
        reason::{Outcome, Reason},
    },
};

const REMOTE: Outcome = Outcome::passed(Reason::NoRoute);

/// Both frontends lead to the cluster set, of three endpoints; these are on this node.
fn world(family: &Family, here: &[usize]) -> World {
    let world = family.world(3);
    let keys: std::vec::Vec<_> = world.maps(|maps| maps.frontends.keys().copied().collect());
    for key in keys {
        world.put(key, |value| {
            value.flags =
                value.flags & !OUTSIDE_TO_LOCAL | OUTSIDE_TO_CLUSTER | MASQUERADED_ELSEWHERE;
            (value.cluster_set, value.local_set) = (value.local_set, 0);
        });
    }
    place(family, &world, here);
    world
}

/// Makes these the endpoints on this node.
fn place(family: &Family, world: &World, here: &[usize]) {
    let here: BTreeSet<_> = here
        .iter()
        .map(|index| at(family.endpoints[*index]))
        .collect();
    world.maps(|maps| {
        for endpoint in maps.sets.values_mut().flatten() {
            let ip = crate::address::to_ip(endpoint.address);
            let is_here = here.contains(&SocketAddr::new(ip, endpoint.port));
            endpoint.flags = if is_here { ON_NODE } else { 0 };
        }
    });
}

/// The client, from another port.
fn from<'a>(family: &Family, world: &'a World, port: u16) -> Client<'a> {
    let mut client = family.client(world);
    client.from.set_port(port);
    client
}

/// All frontends keep the endpoint of a client for ten seconds.
fn sticky(world: &World) {
    let keys: std::vec::Vec<_> = world.maps(|maps| maps.frontends.keys().copied().collect());
    for key in keys {
        world.put(key, |value| value.affinity = 10);
    }
}

#[test]
fn an_endpoint_here_is_led_to_and_one_without_a_way_left_to_the_layer_beneath() {
    for family in BOTH {
        for payload in [syn(), datagram()] {
            let world = world(&family, &[1]);
            let mut passed = 0;
            for port in 1..300 {
                let client = from(&family, &world, port);
                match client.sends(payload.clone()) {
                    Ok(endpoint) => assert_eq!(endpoint, at(family.endpoints[1])),
                    Err(outcome) => {
                        assert_eq!(outcome, REMOTE);
                        passed += 1;
                    }
                }
            }
            // Each of the three has its share.
            assert!((150..250).contains(&passed), "{passed}");
        }
    }
}

#[test]
fn a_flow_that_was_passed_on_stays_beneath_when_its_endpoint_turns_out_to_be_here() {
    for family in BOTH {
        for payload in [syn(), datagram()] {
            let world = world(&family, &[]);
            let client = family.client(&world);
            assert_eq!(client.sends(payload.clone()), Err(REMOTE));
            place(&family, &world, &[0, 1, 2]);
            let beneath = Err(Outcome::passed(Reason::Beneath));
            assert_eq!(client.sends(payload.clone()), beneath);
            assert!(from(&family, &world, 1).sends(payload).is_ok());
        }
    }
}

#[test]
fn a_flow_goes_on_when_its_endpoint_turns_out_to_be_elsewhere() {
    for family in BOTH {
        let world = world(&family, &[0, 1, 2]);
        let client = family.client(&world);
        let (connected, asked) = (client.connects(), client.asks());
        place(&family, &world, &[]);
        assert_eq!(client.sends(data()), Ok(connected));
        assert_eq!(client.sends(datagram()), Ok(asked));
        assert_eq!(from(&family, &world, 1).sends(syn()), Err(REMOTE));
    }
}

#[test]
fn datagrams_leave_an_endpoint_that_is_removed_from_the_cluster_set() {
    for family in BOTH {
        let world = world(&family, &[0, 1, 2]);
        let client = family.client(&world);
        let endpoint = client.asks();
        family.lead_without(&world, 3, endpoint);
        place(&family, &world, &[0, 1, 2]);
        assert_ne!(client.sends(datagram()).unwrap(), endpoint);
    }
}

#[test]
fn a_client_that_keeps_an_endpoint_without_a_way_is_always_left_to_the_layer_beneath() {
    for family in BOTH {
        let (mut here, mut elsewhere) = (0, 0);
        for seed in 0..12 {
            let world = world(&family, &[1]);
            world.maps(|maps| maps.random = seed);
            sticky(&world);
            let first = family.client(&world).sends(syn());
            match first {
                Ok(_) => here += 1,
                Err(outcome) => {
                    assert_eq!(outcome, REMOTE);
                    elsewhere += 1;
                }
            }
            for port in 1..20 {
                world.pass(9);
                let client = from(&family, &world, port);
                assert_eq!(client.sends(syn()), first);
                assert_eq!(client.sends(datagram()).is_ok(), first.is_ok());
            }
            let kept = |key: &ClientKey| key.service == 1;
            assert!(world.maps(|maps| maps.clients.keys().any(kept)));
        }
        assert!(here > 0 && elsewhere > 0, "{here} {elsewhere}");
    }
}

#[test]
fn an_endpoint_that_dials_itself_is_left_to_the_layer_beneath() {
    for family in BOTH {
        let world = world(&family, &[0]);
        family.lead(&world, &[0]);
        place(&family, &world, &[0]);
        let mut client = family.client(&world);
        client.from.set_ip(at(family.endpoints[0]).ip());
        for payload in [syn(), datagram()] {
            let own = Err(Outcome::passed(Reason::LocalSource));
            assert_eq!(client.sends(payload), own);
        }
    }
}

#[test]
fn where_an_endpoint_is_taken_another_one_here_is_led_to_and_none_without_a_way() {
    for family in BOTH {
        let world = world(&family, &[0, 1, 2]);
        let (client, second) = (family.client(&world), family.second(&world));
        let taken = client.connects();
        // The same packet chooses the same endpoint of the second frontend, or the next one.
        for _ in 0..3 {
            assert_ne!(second.sends(syn()), Ok(taken));
        }
        let index = family.endpoints.iter().position(|one| at(one) == taken);
        place(&family, &world, &[index.unwrap()]);
        for port in 1..40 {
            let client = from(&family, &world, port);
            let mut second = family.second(&world);
            second.from.set_port(port);
            if client.sends(syn()).is_ok() {
                let went = second.sends(syn());
                assert!(went == Err(REMOTE), "{went:?}");
            }
        }
    }
}

#[test]
fn what_is_passed_on_for_policy_local_is_passed_on_here_too() {
    for family in BOTH {
        let expect = |reason, refuse: fn(&World)| {
            let world = world(&family, &[0, 1, 2]);
            refuse(&world);
            let client = family.client(&world);
            for payload in [syn(), datagram()] {
                assert_eq!(client.sends(payload), Err(Outcome::passed(reason)));
            }
        };
        expect(Reason::NoEndpoint, |world| world.set(SET, &[]));
        expect(Reason::Leaving, |world| {
            world.maps(|maps| maps.settings.flags |= LEAVING);
        });
        expect(Reason::TableFull, |world| {
            world.maps(|maps| maps.settings.most_flows = 0);
        });
        expect(Reason::SourceRanges, |world| {
            let keys: std::vec::Vec<_> =
                world.maps(|maps| maps.frontends.keys().copied().collect());
            for key in keys {
                world.put(key, |value| value.flags |= RANGED);
            }
        });
    }
}
