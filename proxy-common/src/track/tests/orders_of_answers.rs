//! A flow is made an answered one on one CPU while another handles a packet of it: that one goes the
//! flow's way too.

use std::net::SocketAddr;

use super::{
    EVERY, World,
    journey::{ack, data, datagram, syn, taken},
    orders::{Act, comes, in_every_order, leaves, of, settles, went},
};
use crate::{
    socket::{TCP, UDP},
    track::reason::Outcome,
};

/// A connection that waits for the packet that makes it an answered one.
fn answered() -> (World, SocketAddr) {
    let world = EVERY[0].world(3);
    let client = EVERY[0].client(&world);
    let endpoint = client.sends(syn()).unwrap();
    client.hears(endpoint, taken()).unwrap();
    (world, endpoint)
}

/// While the connection becomes an answered one, another packet of it goes the same way.
fn promoted_while(other: Act, endpoint: SocketAddr, world: World) -> usize {
    let family = EVERY[0];
    let first = comes(&family.client(&world), ack());
    let answers = matches!(other, Act::Leaves(_));
    in_every_order(world, &[first, other], |world, became| {
        let client = of(&family, world);
        assert_eq!(went(&became[0]), Ok(endpoint));
        if answers {
            assert_eq!(became[1].0, Outcome::TRANSLATED);
        } else {
            assert_eq!(went(&became[1]), Ok(endpoint));
            // Nothing is left that would hold the place when the flow is over.
            assert_eq!(world.maps(|maps| maps.opening.keys()), []);
        }
        settles(&client, endpoint, &data());
        assert_eq!(world.maps(|maps| maps.flows), 1);
    })
}

#[test]
fn data_that_comes_with_the_promoting_packet_goes_its_way() {
    let (world, endpoint) = answered();
    let other = comes(&EVERY[0].client(&world), data());
    let orders = promoted_while(other, endpoint, world);
    assert!(orders > 5, "{orders}");
}

#[test]
fn a_first_packet_sent_again_with_the_promoting_packet_goes_its_way() {
    let (world, endpoint) = answered();
    let other = comes(&EVERY[0].client(&world), syn());
    promoted_while(other, endpoint, world);
}

#[test]
fn an_answer_sent_again_with_the_promoting_packet_goes_its_way() {
    let (world, endpoint) = answered();
    let other = leaves(&EVERY[0].client(&world), endpoint, taken());
    promoted_while(other, endpoint, world);
}

/// A flow of UDP, with this number of answers.
fn asked(answers: usize) -> (World, SocketAddr) {
    let world = EVERY[0].world(3);
    let client = EVERY[0].client(&world);
    let endpoint = client.sends(datagram()).unwrap();
    for _ in 0..answers {
        client.hears(endpoint, datagram()).unwrap();
    }
    (world, endpoint)
}

#[test]
fn a_datagram_that_comes_with_the_promoting_answer_goes_its_way() {
    let family = EVERY[0];
    for evicted in [false, true] {
        let (world, endpoint) = asked(1);
        let client = family.client(&world);
        if evicted {
            world.maps(|maps| maps.opening.remove(&client.key(UDP)));
        }
        let acts = [
            comes(&client, datagram()),
            leaves(&client, endpoint, datagram()),
        ];
        in_every_order(world, &acts, |world, became| {
            assert_eq!(went(&became[0]), Ok(endpoint));
            assert_eq!(became[1].0, Outcome::TRANSLATED);
            let client = of(&family, world);
            // Without an eviction at the same time there is not even a second to wait.
            if !evicted {
                client.hears(endpoint, datagram()).unwrap();
            }
            settles(&client, endpoint, &datagram());
        });
    }
}

#[test]
fn a_packet_that_comes_with_the_promoting_one_begins_nothing_although_it_would_go_elsewhere() {
    // Whoever begins now finds another endpoint in each place.
    let family = EVERY[0];
    let elsewhere = [1, 2, 0];
    let (world, endpoint) = asked(1);
    family.lead(&world, &elsewhere);
    let client = family.client(&world);
    let acts = [
        comes(&client, datagram()),
        leaves(&client, endpoint, datagram()),
    ];
    in_every_order(world, &acts, |_, became| {
        assert_eq!(went(&became[0]), Ok(endpoint));
    });

    let (world, endpoint) = answered();
    family.lead(&world, &elsewhere);
    let client = family.client(&world);
    let acts = [comes(&client, syn()), comes(&client, ack())];
    in_every_order(world, &acts, |_, became| {
        assert_eq!([went(&became[0]), went(&became[1])], [Ok(endpoint); 2]);
    });
}

#[test]
fn two_promoting_packets_make_one_flow() {
    let (world, endpoint) = answered();
    let other = comes(&EVERY[0].client(&world), ack());
    promoted_while(other, endpoint, world);

    let (world, endpoint) = asked(1);
    let answer = leaves(&EVERY[0].client(&world), endpoint, datagram());
    in_every_order(world, &[answer.clone(), answer], |world, became| {
        assert_eq!([became[0].0, became[1].0], [Outcome::TRANSLATED; 2]);
        settles(&of(&EVERY[0], world), endpoint, &datagram());
        assert_eq!(world.maps(|maps| maps.flows), 1);
    });
}

#[test]
fn a_first_packet_sent_again_does_not_harm_a_flow_that_is_answered_meanwhile() {
    // Its entry was evicted; the answer brings it back, and the client goes on.
    let family = EVERY[0];
    let world = family.world(3);
    let client = family.client(&world);
    let endpoint = client.sends(syn()).unwrap();
    world.maps(|maps| maps.opening.remove(&client.key(TCP)));
    let goes_on = Act::Each(std::vec![
        leaves(&client, endpoint, taken()),
        comes(&client, ack()),
    ]);
    let acts = [comes(&client, syn()), goes_on];
    in_every_order(world, &acts, |world, became| {
        assert_eq!([went(&became[0]), went(&became[1])], [Ok(endpoint); 2]);
        let client = of(&family, world);
        assert_eq!(client.hears(endpoint, data()), Ok(()));
        settles(&client, endpoint, &data());
        assert_eq!(world.maps(|maps| maps.flows), 1);
    });
}
