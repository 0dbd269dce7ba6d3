//! What several flows share: two frontends of one endpoint, and clients that keep their endpoint.

use super::{
    EVERY, World,
    journey::{ack, data, datagram, fin, fin_too, syn, taken},
};
use crate::{
    socket::{TCP, UDP},
    track::reason::{Outcome, Reason},
};

#[test]
fn of_two_frontends_with_one_endpoint_one_is_served_from_one_port() {
    for family in EVERY {
        for (payload, answered) in [
            (syn(), true),
            (syn(), false),
            (datagram(), true),
            (datagram(), false),
        ] {
            let is_udp = payload == datagram();
            let world = family.world(1);
            let (client, second) = (family.client(&world), family.second(&world));
            let endpoint = match (answered, is_udp) {
                (true, true) => client.asks(),
                (true, false) => client.connects(),
                (false, _) => client.sends(payload.clone()).unwrap(),
            };
            let collides = Outcome::passed(Reason::Collision);
            assert_eq!(second.sends(payload.clone()), Err(collides));
            let beneath = Outcome::passed(Reason::Beneath);
            assert_eq!(second.sends(payload.clone()), Err(beneath));
            // The first one does not notice.
            assert_eq!(
                client.hears(endpoint, if is_udp { datagram() } else { taken() }),
                Ok(())
            );
            assert_eq!(
                client.sends(if is_udp { datagram() } else { ack() }),
                Ok(endpoint)
            );
            // From another port it is served.
            let mut other = second;
            other.from.set_port(7);
            assert_eq!(other.sends(payload), Ok(endpoint));
        }
    }
}

#[test]
fn of_two_frontends_with_more_endpoints_each_gets_another_one_from_one_port() {
    for family in EVERY {
        for port in 40000..40050 {
            for payload in [syn(), datagram()] {
                let world = family.world(2);
                let (mut client, mut second) = (family.client(&world), family.second(&world));
                client.from.set_port(port);
                second.from.set_port(port);
                let one = client.sends(payload.clone()).unwrap();
                let other = second.sends(payload.clone()).unwrap();
                assert_ne!(one, other);
                // Sent again, each stays.
                assert_eq!(client.sends(payload.clone()), Ok(one));
                assert_eq!(second.sends(payload.clone()), Ok(other));
                let answer = if payload == syn() {
                    taken()
                } else {
                    payload.clone()
                };
                assert_eq!(client.hears(one, answer.clone()), Ok(()));
                assert_eq!(second.hears(other, answer), Ok(()));
            }
        }
    }
}

#[test]
fn a_flow_that_lost_its_place_to_eviction_gives_way_to_the_one_that_has_it() {
    for family in EVERY {
        for answered in [true, false] {
            let world = family.world(1);
            let (client, second) = (family.client(&world), family.second(&world));
            let endpoint = client.sends(datagram()).unwrap();
            client.sends(syn()).unwrap();
            for protocol in [TCP, UDP] {
                let inside = client.inside(endpoint, protocol);
                world.maps(|maps| maps.opening.remove(&inside));
            }
            if answered {
                second.connects();
                second.asks();
            } else {
                second.sends(syn()).unwrap();
                second.sends(datagram()).unwrap();
            }
            let superseded = Outcome::dropped(Reason::Superseded);
            assert_eq!(client.sends(data()), Err(superseded));
            let collides = Outcome::passed(Reason::Collision);
            assert_eq!(client.sends(syn()), Err(collides));
            assert_eq!(client.sends(datagram()), Err(collides));
            assert_eq!(second.hears(endpoint, datagram()), Ok(()));
        }
    }
}

#[test]
fn a_closed_connection_to_one_frontend_holds_its_place_until_it_is_forgotten() {
    let family = EVERY[0];
    let world = family.world(1);
    let (client, second) = (family.client(&world), family.second(&world));
    let endpoint = client.connects();
    client.sends(fin()).unwrap();
    client.hears(endpoint, fin_too()).unwrap();
    let collides = Outcome::passed(Reason::Collision);
    assert_eq!(second.sends(syn()), Err(collides));
    // The last packets of the first one still find their way.
    assert_eq!(client.sends(ack()), Ok(endpoint));
    assert_eq!(client.hears(endpoint, ack()), Ok(()));
}

/// All frontends keep the endpoint of a client for ten seconds.
fn sticky(world: &World) {
    world.maps(|maps| {
        for (key, value) in &mut maps.frontends {
            value.affinity = 10;
            *value = value.sealed(key);
        }
    });
}

#[test]
fn a_client_keeps_its_endpoint_over_connections() {
    for family in EVERY {
        let world = family.world(3);
        sticky(&world);
        let mut client = family.client(&world);
        let endpoint = client.connects();
        for port in 1..30 {
            client.from.set_port(port);
            assert_eq!(client.connects(), endpoint);
            world.pass(10);
        }
        // Also where the set changed, and for datagrams; but not at another Service.
        family.lead(&world, &[2, 1, 0]);
        assert_eq!(client.asks(), endpoint);
        let mut others = (0..30).map(|port| {
            let mut second = family.second(&world);
            second.from.set_port(100 + port);
            world.pass(11);
            second.connects()
        });
        assert!(others.any(|other| other != endpoint));
    }
}

#[test]
fn a_client_that_was_away_for_too_long_gets_any_endpoint() {
    let family = EVERY[0];
    let world = family.world(3);
    sticky(&world);
    let mut client = family.client(&world);
    let mut endpoints: std::vec::Vec<_> = (1..40)
        .map(|port| {
            client.from.set_port(port);
            world.pass(11);
            client.connects()
        })
        .collect();
    endpoints.sort();
    endpoints.dedup();
    assert_eq!(endpoints.len(), 3);
}

#[test]
fn a_client_whose_endpoint_is_removed_keeps_another_one() {
    let family = EVERY[0];
    let world = family.world(3);
    sticky(&world);
    let mut client = family.client(&world);
    let endpoint = client.connects();
    family.lead_without(&world, 3, endpoint);
    assert_eq!(client.sends(data()), Ok(endpoint), "what is open goes on");
    client.from.set_port(1);
    let other = client.connects();
    assert_ne!(other, endpoint);
    for port in 2..20 {
        client.from.set_port(port);
        assert_eq!(client.connects(), other);
    }
}

#[test]
fn a_client_that_must_keep_an_endpoint_that_is_taken_is_left_to_the_layer_beneath() {
    let family = EVERY[0];
    let world = family.world(3);
    sticky(&world);
    let (client, second) = (family.client(&world), family.second(&world));
    let endpoint = client.connects();
    // It is known to the second Service as the client of the same endpoint.
    world.maps(|maps| {
        let (key, value) = maps.clients.iter().next().map(|(k, v)| (*k, *v)).unwrap();
        let other = crate::affinity::ClientKey { service: 2, ..key };
        let value = crate::affinity::AffinityValue::new(&other, value.endpoint, value.last_used);
        maps.clients.insert(other, value);
    });
    let collides = Outcome::passed(Reason::Collision);
    assert_eq!(second.sends(syn()), Err(collides));
    assert_eq!(client.sends(data()), Ok(endpoint));
}
