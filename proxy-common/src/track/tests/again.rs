//! The same client, port and frontend once more: packets sent again, and ports used again.

use super::{
    Client, EVERY,
    journey::{BEGIN, ack, acked_last, data, datagram, fin, rst, syn, taken, tcp},
};
use crate::{
    packet::parse::flags,
    socket::TCP,
    track::{reason::Outcome, seen},
};

#[test]
fn a_first_packet_sent_again_goes_to_the_same_endpoint_whatever_was_evicted() {
    for family in EVERY {
        for port in 40000..40040 {
            for (dialled, inside) in [(false, false), (true, false), (false, true), (true, true)] {
                let world = family.world(3);
                let mut client = family.client(&world);
                client.from.set_port(port);
                let endpoint = client.sends(syn()).unwrap();
                evict(&client, endpoint, dialled, inside);
                assert_eq!(client.sends(syn()), Ok(endpoint));
                let of_others = tcp(flags::SYN | flags::ACK, BEGIN, 9);
                let heard = client.hears(endpoint, of_others);
                assert_eq!(heard, Err(Outcome::UNTOUCHED));
                assert_eq!(client.hears(endpoint, taken()), Ok(()));
                assert_eq!(client.sends(ack()), Ok(endpoint));
                world.maps(|maps| {
                    assert_eq!(
                        (maps.flows, maps.track.keys().len()),
                        (family.counts(), family.entries(1))
                    );
                    assert_eq!((maps.opening.keys().len(), maps.halves().len()), (0, 0));
                });
            }
        }
    }
}

fn evict(client: &Client<'_>, endpoint: std::net::SocketAddr, dialled: bool, inside: bool) {
    client.world.maps(|maps| {
        if dialled {
            assert!(maps.opening.remove(&client.key(TCP)));
        }
        if inside {
            assert!(maps.opening.remove(&client.inside(endpoint, TCP)));
        }
    });
}

#[test]
fn a_first_packet_sent_again_goes_to_the_same_endpoint_when_others_joined() {
    for family in EVERY {
        for port in 40000..40040 {
            let world = family.world(1);
            let mut client = family.client(&world);
            client.from.set_port(port);
            let endpoint = client.sends(syn()).unwrap();
            family.lead(&world, &[2, 1, 0]);
            assert_eq!(client.sends(syn()), Ok(endpoint));
        }
    }
}

#[test]
fn a_first_packet_sent_again_leaves_an_endpoint_that_is_removed() {
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        let endpoint = client.sends(syn()).unwrap();
        family.lead_without(&world, 3, endpoint);
        let other = client.sends(syn()).unwrap();
        assert_ne!(other, endpoint);
        client.hears(other, taken()).unwrap();
        assert_eq!(client.sends(ack()), Ok(other));
    }
}

#[test]
fn an_answer_brings_back_the_entry_that_was_evicted_before_it() {
    let family = EVERY[0];
    let world = family.world(3);
    let client = family.client(&world);
    let endpoint = client.sends(syn()).unwrap();
    evict(&client, endpoint, true, false);
    assert_eq!(client.hears(endpoint, taken()), Ok(()));
    assert_eq!(client.sends(ack()), Ok(endpoint));
    assert_eq!(world.maps(|maps| maps.flows), family.counts());
}

/// How a connection ends.
type End = fn(&Client<'_>, std::net::SocketAddr);

const ENDS: [(&str, End); 3] = [
    ("both sides are done", |client, endpoint| {
        client.hears(endpoint, fin()).unwrap();
        client.sends(fin()).unwrap();
        client.hears(endpoint, acked_last()).unwrap();
    }),
    ("the client broke it", |client, _| {
        client.sends(rst()).unwrap();
    }),
    ("the endpoint broke it", |client, endpoint| {
        client.hears(endpoint, rst()).unwrap();
    }),
];

#[test]
fn the_port_of_a_closed_connection_may_reach_another_endpoint() {
    for family in EVERY {
        for (what, end) in ENDS {
            let world = family.world(3);
            let client = family.client(&world);
            let endpoint = client.connects();
            end(&client, endpoint);
            family.lead_without(&world, 3, endpoint);
            let other = client.connects();
            assert_ne!(other, endpoint, "{what}");
            assert_eq!(client.sends(data()), Ok(other));
            assert_eq!(client.hears(other, data()), Ok(()));
            world.maps(|maps| {
                assert_eq!(
                    (maps.flows, maps.track.keys().len(), maps.halves().len()),
                    (family.counts(), family.entries(1), 0)
                );
            });
        }
    }
}

#[test]
fn the_port_of_a_closed_connection_may_reach_the_same_endpoint_as_a_new_flow() {
    for family in EVERY {
        for (what, end) in ENDS {
            let world = family.world(1);
            let client = family.client(&world);
            let endpoint = client.connects();
            let serial = || world.maps(|maps| maps.track.get(&client.key(TCP)).map(|v| v.serial));
            let before = serial();
            end(&client, endpoint);
            assert_eq!(client.connects(), endpoint);
            assert_ne!(serial(), before, "{what}");
            assert_eq!(world.maps(|maps| maps.flows), family.counts());
        }
    }
}

#[test]
fn a_first_packet_on_an_open_connection_goes_where_the_connection_does() {
    for family in EVERY {
        let world = family.world(2);
        let client = family.client(&world);
        let endpoint = client.connects();
        // One side done, or broken and still used, is open.
        client.sends(fin()).unwrap();
        family.lead(&world, &[2, 1, 0]);
        assert_eq!(client.sends(syn()), Ok(endpoint));
        assert_eq!(client.hears(endpoint, data()), Ok(()));
        // What is on its way may have been sent before.
        let broken = tcp(flags::RST, 1001, BEGIN + 100);
        client.hears(endpoint, broken).unwrap();
        client.hears(endpoint, data()).unwrap();
        assert_eq!(client.sends(syn()), Ok(endpoint));
        assert_eq!(world.maps(|maps| maps.flows), family.counts());
    }
}

#[test]
fn a_first_packet_on_an_open_connection_to_a_removed_endpoint_goes_there_too() {
    let family = EVERY[0];
    let world = family.world(2);
    let client = family.client(&world);
    let endpoint = client.connects();
    family.lead_without(&world, 2, endpoint);
    for _ in 0..10 {
        // Whoever sent it: that nobody answers says nothing.
        assert_eq!(client.sends(syn()), Ok(endpoint));
        world.pass(30);
    }
    assert_eq!(client.sends(data()), Ok(endpoint));
    assert_eq!(client.hears(endpoint, data()), Ok(()));
}

#[test]
fn a_port_is_free_for_another_endpoint_once_both_sides_seemed_done_with_the_removed_one() {
    for end in [fin(), tcp(flags::RST, 1009, 0)] {
        let family = EVERY[0];
        let world = family.world(2);
        let client = family.client(&world);
        let endpoint = client.connects();
        family.lead_without(&world, 2, endpoint);
        // Its pod is gone before it could acknowledge anything.
        client.hears(endpoint, fin()).unwrap();
        client.sends(end).unwrap();
        assert_eq!(client.sends(syn()), Ok(endpoint));
        world.pass(6);
        assert_ne!(client.connects(), endpoint);
        assert_eq!(world.maps(|maps| maps.flows), family.counts());
    }
}

#[test]
fn what_was_written_for_an_earlier_flow_in_the_same_memory_is_not_believed() {
    let family = EVERY[0];
    let world = family.world(1);
    let client = family.client(&world);
    let endpoint = client.connects();
    // Another CPU, which found the earlier flow there, says that it was broken.
    world.maps(|maps| {
        let (at, value) = maps.track.find(&client.key(TCP)).unwrap();
        let earlier = (value.serial ^ 1) << 16 | seen::RST;
        maps.track.write(at, |value| value.state = earlier);
    });
    assert_eq!(client.sends(syn()), Ok(endpoint));
    assert_eq!(world.maps(|maps| maps.flows), family.counts());
}

#[test]
fn a_datagram_after_all_was_evicted_goes_to_the_same_endpoint() {
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        let endpoint = client.sends(datagram()).unwrap();
        world.maps(|maps| {
            for key in maps.opening.keys() {
                maps.opening.remove(&key);
            }
        });
        assert_eq!(client.sends(datagram()), Ok(endpoint));
    }
}
