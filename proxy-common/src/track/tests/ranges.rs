//! Source ranges: who is admitted, and what becomes of flows when the ranges change.

use std::{net::IpAddr, vec::Vec};

use super::{
    EVERY, Family, World,
    journey::{at, data, datagram, syn},
};
use crate::{
    address,
    frontend::RANGED,
    ranges::{ADDRESS_BITS, MAPPED_BITS, RangeKey, RangeValue},
    track::reason::{Outcome, Reason},
};

const REFUSED: Outcome = Outcome::passed(Reason::SourceRanges);

/// Makes both frontends ranged.
fn restrict(world: &World) {
    let keys: Vec<_> = world.maps(|maps| maps.frontends.keys().copied().collect());
    for key in keys {
        world.put(key, |value| value.flags |= RANGED);
    }
}

/// Admits the address and its neighbours, up to the last `free` bits, to a Service.
fn admit(world: &World, service: u32, to: IpAddr, free: u32) {
    let key = RangeKey::new(service, address::from_ip(to), ADDRESS_BITS - free);
    let value = RangeValue::new(service);
    world.maps(|maps| maps.ranges.push((key, value)));
}

fn admit_nobody(world: &World) {
    world.maps(|maps| maps.ranges.clear());
}

/// A world with one endpoint whose frontends are ranged.
fn ranged(family: &Family) -> World {
    let world = family.world(1);
    restrict(&world);
    world
}

#[test]
fn clients_in_a_range_of_the_service_are_served_and_others_passed_on() {
    for family in EVERY {
        let world = ranged(&family);
        let (client, second) = (family.client(&world), family.second(&world));
        admit(&world, 1, client.from.ip(), 8);
        for payload in [syn(), datagram()] {
            assert_eq!(second.sends(payload.clone()), Err(REFUSED));
            let mut stranger = family.client(&world);
            stranger.from = at(family.router);
            stranger.from.set_port(40000);
            assert_eq!(stranger.sends(payload), Err(REFUSED));
        }
        client.connects();
        client.asks();

        let world = ranged(&family);
        let (client, second) = (family.client(&world), family.second(&world));
        admit(&world, 2, client.from.ip(), 8);
        assert_eq!(client.sends(syn()), Err(REFUSED));
        second.connects();
    }
}

#[test]
fn ranges_are_of_the_whole_length_of_an_address_or_of_none_of_it() {
    for family in EVERY {
        for free in [0, 1, ADDRESS_BITS - MAPPED_BITS] {
            let world = ranged(&family);
            let client = family.client(&world);
            admit(&world, 1, client.from.ip(), free);
            client.connects();
        }
    }
}

#[test]
fn a_client_is_served_once_the_ranges_admit_it_and_refused_once_they_do_not() {
    for family in EVERY {
        let world = ranged(&family);
        let mut client = family.client(&world);
        assert_eq!(client.sends(syn()), Err(REFUSED));
        admit(&world, 1, client.from.ip(), 0);
        // The same packet, sent again.
        let (endpoint, other) = (client.connects(), client.asks());
        admit_nobody(&world);
        assert_eq!(client.sends(data()), Ok(endpoint), "it was admitted");
        assert_eq!(client.hears(endpoint, data()), Ok(()));
        assert_eq!(client.sends(datagram()), Ok(other));
        client.from.set_port(40001);
        assert_eq!(client.sends(syn()), Err(REFUSED));
        assert_eq!(client.sends(datagram()), Err(REFUSED));
    }
}

#[test]
fn a_value_of_another_service_admits_nobody() {
    for family in EVERY {
        let world = ranged(&family);
        let client = family.client(&world);
        admit(&world, 1, client.from.ip(), 0);
        world.maps(|maps| maps.ranges[0].1 = RangeValue::new(2));
        assert_eq!(client.sends(syn()), Err(REFUSED));
    }
}

#[test]
fn who_says_to_be_the_address_that_it_dials_is_left_to_the_layer_beneath() {
    for family in EVERY {
        for is_ranged in [false, true] {
            let world = family.world(1);
            let mut client = family.client(&world);
            client.from.set_ip(client.to.ip());
            if is_ranged {
                restrict(&world);
                admit(&world, 1, client.from.ip(), 0);
            }
            let own = Err(Outcome::passed(Reason::LocalSource));
            assert_eq!(client.sends(syn()), own);
            assert_eq!(client.sends(datagram()), own);
        }
    }
}
