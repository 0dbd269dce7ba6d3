//! A flow ends on one CPU while another handles a packet of it, or of the next one from the same
//! port: nothing is left half, and what begins comes about.

use std::vec::Vec;

use super::{
    EVERY,
    journey::{ack, acked, data, fin, fin_too, syn, taken},
    orders::{Act, comes, in_every_order, leaves, of, settles, went},
};
use crate::{socket::TCP, track::reason::Outcome};

#[test]
fn a_first_packet_on_a_flow_that_is_swept_begins_another() {
    for role in 0..2 {
        let family = EVERY[0];
        let world = family.world(3);
        let client = family.client(&world);
        let endpoint = client.connects();
        client.sends(fin()).unwrap();
        client.hears(endpoint, fin_too()).unwrap();
        world.pass(11);
        let keys = [client.key(TCP), client.inside(endpoint, TCP)];
        let acts = [comes(&client, syn()), Act::Sweeps(keys[role])];
        in_every_order(world, &acts, |world, became| {
            let client = of(&family, world);
            let endpoint = went(&became[0]).unwrap();
            client.hears(endpoint, taken()).unwrap();
            assert_eq!(client.sends(ack()), Ok(endpoint));
            settles(&client, endpoint, &data());
            assert_eq!(world.maps(|maps| maps.flows), 1);
        });
    }
}

#[test]
fn two_sweeps_of_one_flow_count_it_once() {
    let family = EVERY[0];
    let world = family.world(3);
    let client = family.client(&world);
    let endpoint = client.connects();
    world.pass(7201);
    let keys = [client.key(TCP), client.inside(endpoint, TCP)];
    in_every_order(world, &keys.map(Act::Sweeps), |world, _| {
        world.maps(|maps| assert_eq!((maps.flows, maps.track.keys()), (0, Vec::new())));
    });
}

#[test]
fn a_flow_that_comes_to_life_while_it_is_swept_is_whole_or_gone() {
    for role in 0..2 {
        for by_client in [true, false] {
            let family = EVERY[0];
            let world = family.world(3);
            let client = family.client(&world);
            let endpoint = client.connects();
            world.pass(7201);
            let packet = if by_client {
                comes(&client, data())
            } else {
                leaves(&client, endpoint, data())
            };
            let keys = [client.key(TCP), client.inside(endpoint, TCP)];
            let acts = [packet, Act::Sweeps(keys[role])];
            in_every_order(world, &acts, |world, became| {
                let client = of(&family, world);
                world.pass(1);
                let heard = client.hears(endpoint, data());
                let sent = client.sends(data());
                // What was half is mended or swept in the end.
                world.maps(|maps| {
                    assert_eq!(usize::try_from(maps.flows), Ok(maps.dialled()));
                    if heard.is_ok() || sent.is_ok() {
                        assert_eq!(maps.halves(), []);
                        assert_eq!(maps.flows, 1);
                    } else {
                        assert_eq!(maps.track.keys(), []);
                    }
                });
                assert!(became[0].0 == Outcome::TRANSLATED || sent.is_err());
            });
        }
    }
}

#[test]
fn a_late_packet_of_a_closed_connection_does_not_keep_the_next_one_from_coming_about() {
    let family = EVERY[0];
    let world = family.world(1);
    let client = family.client(&world);
    let endpoint = client.connects();
    client.hears(endpoint, fin()).unwrap();
    client.sends(fin()).unwrap();
    client.hears(endpoint, acked()).unwrap();
    world.pass(1);
    let acts = [comes(&client, syn()), leaves(&client, endpoint, acked())];
    in_every_order(world, &acts, |world, became| {
        let client = of(&family, world);
        assert_eq!(went(&became[0]), Ok(endpoint));
        client.hears(endpoint, taken()).unwrap();
        assert_eq!(client.sends(ack()), Ok(endpoint));
        settles(&client, endpoint, &data());
        assert_eq!(world.maps(|maps| maps.flows), 1);
    });
}
