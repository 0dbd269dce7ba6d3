//! ICMP errors about translated packets: whoever sent the packet must know it again.

use std::{boxed::Box, net::SocketAddr};

use super::{
    EVERY,
    journey::{at, data, datagram, syn},
};
use crate::{
    in_memory::{Build, Payload},
    track::reason::{Outcome, Reason},
};

/// An error from `from` that quotes `about`.
fn error(kind: u8, from: SocketAddr, about: &Build) -> Build {
    Build {
        from: SocketAddr::new(from.ip(), 0),
        to: SocketAddr::new(about.from.ip(), 0),
        options: 0,
        payload: Payload::Error(kind, Box::new(about.clone()), 88),
    }
}

/// Unreachable, and too big: one type in IPv4.
fn kinds(from: SocketAddr) -> &'static [u8] {
    if from.is_ipv4() { &[3, 11] } else { &[1, 2, 3] }
}

#[test]
fn an_error_about_a_request_reaches_the_client_as_one_about_what_it_sent() {
    for family in EVERY {
        for (udp, answered) in [(true, true), (true, false), (false, true), (false, false)] {
            let world = family.world(3);
            let client = family.client(&world);
            let (endpoint, payload) = match (udp, answered) {
                (true, true) => (client.asks(), datagram()),
                (true, false) => (client.sends(datagram()).unwrap(), datagram()),
                (false, true) => (client.connects(), data()),
                (false, false) => (client.sends(syn()).unwrap(), syn()),
            };
            let request = client.build(payload);
            let inside = Build {
                to: endpoint,
                ..request.clone()
            };
            for kind in kinds(client.from) {
                // From the endpoint it is the frontend's, from a router on the way the router's.
                let of_endpoint = world.leaves(&error(*kind, endpoint, &inside).bytes());
                let expected = error(*kind, client.to, &request).bytes();
                assert_eq!(of_endpoint, (Outcome::TRANSLATED, expected));
                let router = at(family.router);
                let of_router = world.leaves(&error(*kind, router, &inside).bytes());
                let expected = error(*kind, router, &request).bytes();
                assert_eq!(of_router, (Outcome::TRANSLATED, expected));
            }
        }
    }
}

#[test]
fn an_error_about_a_reply_reaches_the_endpoint_that_sent_it() {
    for family in EVERY {
        for udp in [true, false] {
            let world = family.world(3);
            let client = family.client(&world);
            let (endpoint, payload) = if udp {
                (client.asks(), datagram())
            } else {
                (client.connects(), data())
            };
            let sent = Build {
                from: endpoint,
                to: client.from,
                options: 0,
                payload,
            };
            let outside = Build {
                from: client.to,
                ..sent.clone()
            };
            for kind in kinds(client.from) {
                for from in [at(family.router), client.from] {
                    let became = world.comes(&error(*kind, from, &outside).bytes());
                    let expected = error(*kind, from, &sent).bytes();
                    assert_eq!(became, (Outcome::TRANSLATED, expected));
                }
            }
        }
    }
}

#[test]
fn an_error_quotes_no_missing_sum_where_one_came_to_zero() {
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        // With its sum for data, a datagram has one that comes to zero; it is sent as all ones.
        let of = |data: [u8; 2]| client.build(Payload::Udp(data.to_vec()));
        let sum = |build: &Build| {
            let bytes = build.bytes().0;
            let at = bytes.len() - 4;
            [bytes[at], bytes[at + 1]]
        };
        let request = of(sum(&of([0, 0])));
        assert_eq!(sum(&request), [0xff, 0xff]);
        let endpoint = client.sends(request.payload.clone()).unwrap();
        let inside = Build {
            to: endpoint,
            ..request.clone()
        };
        let became = world.leaves(&error(3, endpoint, &inside).bytes());
        let expected = error(3, client.to, &request).bytes();
        assert_eq!(became, (Outcome::TRANSLATED, expected));
    }
}

#[test]
fn errors_about_what_is_not_translated_are_untouched() {
    for family in EVERY {
        let world = family.world(3);
        let client = family.client(&world);
        client.connects();
        let mut other = client;
        other.from.set_port(1);
        let reply = Build {
            from: other.to,
            to: other.from,
            ..other.build(data())
        };
        let router = at(family.router);
        let became = world.comes(&error(3, router, &reply).bytes());
        assert_eq!(became.0, Outcome::UNTOUCHED);
        let inside = Build {
            to: at(family.endpoints[0]),
            ..other.build(data())
        };
        let became = world.leaves(&error(3, router, &inside).bytes());
        assert_eq!(became.0, Outcome::UNTOUCHED);
        // A flow of the layer beneath.
        family.lead(&world, &[]);
        other.sends(datagram()).unwrap_err();
        let reply = Build {
            payload: datagram(),
            ..reply
        };
        let became = world.comes(&error(3, router, &reply).bytes());
        assert_eq!(became.0, Outcome::UNTOUCHED);
    }
}

#[test]
fn an_error_that_quotes_no_more_than_it_must_is_translated_too() {
    let family = EVERY[0];
    let world = family.world(3);
    let client = family.client(&world);
    let endpoint = client.connects();
    let cut = |mut build: Build| {
        if let Payload::Error(_, _, bytes) = &mut build.payload {
            *bytes = 28;
        }
        build.bytes()
    };
    let inside = Build {
        to: endpoint,
        ..client.build(data())
    };
    let became = world.leaves(&cut(error(3, endpoint, &inside)));
    let expected = cut(error(3, client.to, &client.build(data())));
    assert_eq!(became, (Outcome::TRANSLATED, expected));
}

#[test]
fn a_redirect_would_show_the_client_what_is_behind_the_frontend() {
    let family = EVERY[0];
    let world = family.world(3);
    let client = family.client(&world);
    let endpoint = client.connects();
    let inside = Build {
        to: endpoint,
        ..client.build(data())
    };
    let redirect = Outcome::dropped(Reason::Redirect);
    let became = world.leaves(&error(5, at(family.router), &inside).bytes());
    assert_eq!(became.0, redirect);
    let reply = Build {
        from: client.to,
        to: client.from,
        ..client.build(data())
    };
    let became = world.comes(&error(5, at(family.router), &reply).bytes());
    assert_eq!(became.0, redirect);
    // One that is about another flow is not ours.
    let mut other = client;
    other.from.set_port(1);
    let became = world.leaves(
        &error(
            5,
            at(family.router),
            &Build {
                to: endpoint,
                ..other.build(data())
            },
        )
        .bytes(),
    );
    assert_eq!(became.0, Outcome::UNTOUCHED);
}
