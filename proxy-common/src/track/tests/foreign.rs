//! Flows of this node from ports that endpoints elsewhere see in the place of clients.

use std::net::SocketAddr;

use super::{
    Client, Family, World,
    journey::{
        EVERY, SET, ack, at, data, datagram, fin, key, receiver, rst, sender, syn, taken, tcp,
    },
    ports::far,
};
use crate::{
    address,
    in_memory::{Build, Payload, programs::sweeps},
    node::NodeAddressKey,
    packet::parse::flags,
    socket::{TCP, UDP},
    track::{
        DIALLED, FOREIGN, INSIDE, LEAST_SOURCE_PORT, Setting,
        reason::{Outcome, Reason},
    },
};

/// A socket of this node, or a flow that is masqueraded beneath, from a port that a client's flow to the same
/// endpoint has.
struct Foreign<'a> {
    world: &'a World,
    from: SocketAddr,
    endpoint: SocketAddr,
}

impl<'a> Foreign<'a> {
    /// A client's flow of this protocol, and whatever comes from its port.
    fn of(family: &Family, world: &'a World, is_tcp: bool) -> (Client<'a>, Self) {
        let client = family.client(world);
        let endpoint = if is_tcp {
            client.connects()
        } else {
            client.asks()
        };
        let from = world.maps(|maps| maps.seen_as[&(client.from, endpoint, is_tcp)]);
        let foreign = Self {
            world,
            from,
            endpoint,
        };
        (client, foreign)
    }

    /// As whom the endpoint sees it.
    fn sends(&self, payload: Payload) -> Result<SocketAddr, Outcome> {
        let build = Build {
            from: self.from,
            to: self.endpoint,
            options: 0,
            payload,
        };
        let (outcome, after) = self.world.leaves_for_endpoint(&build.bytes());
        if outcome != Outcome::TRANSLATED {
            return Err(outcome);
        }
        let from = sender(&after, 0);
        assert_eq!(after, Build { from, ..build }.bytes());
        Ok(from)
    }

    /// Whom an answer to `seen` reaches.
    fn hears(&self, seen: SocketAddr, payload: Payload) -> Result<SocketAddr, Outcome> {
        let build = Build {
            from: self.endpoint,
            to: seen,
            options: 0,
            payload,
        };
        let (outcome, after) = self.world.comes_from_endpoint(&build.bytes());
        if outcome != Outcome::TRANSLATED {
            return Err(outcome);
        }
        let to = receiver(&after, 0);
        assert_eq!(after, Build { to, ..build }.bytes());
        Ok(to)
    }

    /// Whether a sweep takes it.
    fn is_swept(&self, protocol: u8) -> bool {
        let key = key(self.from, self.endpoint, protocol, INSIDE);
        sweeps(&self.world.alone(), key)
    }
}

#[test]
fn what_begins_from_the_port_of_a_flow_gets_another_one_and_both_are_answered() {
    for family in far() {
        for is_tcp in [true, false] {
            let world = family.world(1);
            let (client, foreign) = Foreign::of(&family, &world, is_tcp);
            let (begin, goes_on, answer) = if is_tcp {
                (syn(), data(), taken())
            } else {
                (datagram(), datagram(), datagram())
            };
            let seen = foreign.sends(begin.clone()).unwrap();
            assert_eq!(seen.ip(), foreign.from.ip());
            assert_ne!(seen.port(), foreign.from.port());
            assert!(seen.port() >= LEAST_SOURCE_PORT);
            assert_eq!(foreign.sends(begin), Ok(seen));
            assert_eq!(foreign.hears(seen, answer), Ok(foreign.from));
            assert_eq!(foreign.sends(goes_on.clone()), Ok(seen));
            assert_eq!(foreign.hears(seen, goes_on.clone()), Ok(foreign.from));
            assert_eq!(client.hears(foreign.endpoint, goes_on.clone()), Ok(()));
            assert_eq!(client.sends(goes_on), Ok(foreign.endpoint));
            world.maps(|maps| assert_eq!((maps.flows, maps.halves().len()), (3, 0)));
        }
    }
}

#[test]
fn what_nobody_has_the_port_of_is_left_alone_and_not_remembered() {
    for family in far() {
        let world = family.world(1);
        let (_, foreign) = Foreign::of(&family, &world, true);
        let untouched = Err(Outcome::UNTOUCHED);
        // Of another port, endpoint or protocol; or nothing that begins.
        for other in [
            Foreign {
                from: SocketAddr::new(foreign.from.ip(), foreign.from.port() ^ 1),
                ..foreign
            },
            Foreign {
                endpoint: at(family.endpoints[1]),
                ..foreign
            },
        ] {
            assert_eq!(other.sends(syn()), untouched);
        }
        assert_eq!(foreign.sends(datagram()), untouched);
        for payload in [data(), ack(), fin(), rst(), taken()] {
            assert_eq!(foreign.sends(payload), untouched);
        }
        world.maps(|maps| assert_eq!((maps.track.keys().len(), maps.opening.keys().len()), (4, 0)));
        // One that an endpoint here has as a client is of no flow to it.
        let replies = key(foreign.endpoint, foreign.from, TCP, DIALLED);
        world.maps(|maps| {
            let mut value = maps.track.get(&replies).unwrap();
            value.owner = crate::track::TRANSLATED;
            maps.track.remove(&replies);
            maps.track.add(replies, value);
        });
        assert_eq!(foreign.sends(syn()), untouched);
    }
}

#[test]
fn a_flow_that_is_not_answered_yet_has_its_port_too() {
    for family in far() {
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = client.sends(syn()).unwrap();
        let foreign = Foreign {
            world: &world,
            from: world.maps(|maps| maps.seen_as[&(client.from, endpoint, true)]),
            endpoint,
        };
        let seen = foreign.sends(syn()).unwrap();
        assert_ne!(seen, foreign.from);
        assert_eq!(client.hears(endpoint, taken()), Ok(()));
        assert_eq!(client.sends(ack()), Ok(endpoint));
    }
}

#[test]
fn its_port_serves_no_client_however_long_it_is_silent() {
    for family in far() {
        let world = family.world(1);
        let (client, foreign) = Foreign::of(&family, &world, true);
        let seen = foreign.sends(syn()).unwrap();
        world.maps(|maps| maps.settings.first_port = seen.port().into());
        world.maps(|maps| maps.settings.last_port = seen.port().into());
        foreign.hears(seen, taken()).unwrap();
        foreign.sends(ack()).unwrap();
        world.pass(100);
        let mut second = family.client(&world);
        second.from.set_port(7);
        for _ in 0..3 {
            let outcome = second.sends(syn());
            assert_eq!(outcome, Err(Outcome::passed(Reason::NoPort)));
            second.from.set_port(second.from.port() + 1);
        }
        assert_eq!(foreign.hears(seen, data()), Ok(foreign.from));
        assert_eq!(client.hears(foreign.endpoint, data()), Ok(()));
    }
}

#[test]
fn what_leaves_clients_without_ports_leaves_others_theirs() {
    for family in far() {
        let world = family.world(1);
        world.maps(|maps| maps.settings.first_port = 65_535);
        let (_, foreign) = Foreign::of(&family, &world, true);
        assert_eq!(foreign.from.port(), 65_535);
        let seen = foreign.sends(syn()).unwrap();
        // Another one meets the port that this one has.
        let second = Foreign {
            from: seen,
            ..foreign
        };
        let third = second.sends(syn()).unwrap();
        assert!(third != seen && third != foreign.from);
        assert_eq!(second.hears(third, taken()), Ok(seen));
        assert_eq!(foreign.hears(seen, taken()), Ok(foreign.from));
    }
}

#[test]
fn without_another_port_nothing_leaves() {
    for family in far() {
        let world = family.world(1);
        let (client, foreign) = Foreign::of(&family, &world, true);
        world.maps(|maps| maps.reserved.extend(LEAST_SOURCE_PORT..=u16::MAX));
        let no_port = Err(Outcome::dropped(Reason::NoPort));
        assert_eq!(foreign.sends(syn()), no_port);
        assert_eq!(client.sends(data()), Ok(foreign.endpoint));
        world.maps(|maps| assert_eq!((maps.track.keys().len(), maps.flows), (4, 2)));
    }
}

#[test]
fn such_a_flow_is_remembered_for_as_long_as_one_of_a_client() {
    // What happens, and after which idle time it is over.
    type Life = (fn(&Foreign<'_>, SocketAddr), Setting);
    const LIVES: [Life; 7] = [
        (|_, _| {}, Setting::TcpReset),
        (
            |foreign, _| {
                foreign.sends(syn()).unwrap();
            },
            Setting::TcpReset,
        ),
        (
            |foreign, seen| {
                foreign.hears(seen, taken()).unwrap();
                foreign.sends(ack()).unwrap();
                foreign.hears(seen, rst()).unwrap();
            },
            Setting::TcpReset,
        ),
        (
            |foreign, seen| {
                // Sent again, it goes on no more than before.
                foreign.sends(syn()).unwrap();
                foreign
                    .hears(seen, tcp(flags::RST | flags::ACK, 1, 1001))
                    .unwrap();
            },
            Setting::TcpReset,
        ),
        (
            |foreign, seen| {
                foreign.hears(seen, taken()).unwrap();
                foreign.sends(ack()).unwrap();
            },
            Setting::TcpEstablished,
        ),
        (
            |foreign, seen| {
                foreign.hears(seen, taken()).unwrap();
                foreign.sends(rst()).unwrap();
                // Somebody forged that.
                foreign.sends(data()).unwrap();
                foreign.hears(seen, fin()).unwrap();
            },
            Setting::TcpHalfClosed,
        ),
        (
            |foreign, seen| {
                foreign.hears(seen, fin()).unwrap();
                foreign.sends(fin()).unwrap();
            },
            Setting::TcpClosed,
        ),
    ];
    for family in far() {
        for (live, stays) in LIVES {
            let world = family.world(1);
            let (_, foreign) = Foreign::of(&family, &world, true);
            let seen = foreign.sends(syn()).unwrap();
            world.pass(3);
            live(&foreign, seen);
            let stays = world.maps(|maps| maps.settings.get(stays));
            // The first of them is idle since it was made.
            world.pass(stays.saturating_sub(3));
            let swept = foreign.is_swept(TCP);
            assert!(!swept, "{stays}");
            world.pass(4);
            assert!(foreign.is_swept(TCP), "{stays}");
            world.maps(|maps| assert_eq!((maps.track.keys().len(), maps.flows), (4, 2)));
        }
        let world = family.world(1);
        let (_, foreign) = Foreign::of(&family, &world, false);
        let seen = foreign.sends(datagram()).unwrap();
        world.pass(100);
        foreign.hears(seen, datagram()).unwrap();
        world.pass(100);
        assert!(!foreign.is_swept(UDP));
        world.pass(21);
        assert!(foreign.is_swept(UDP));
    }
}

#[test]
fn an_error_about_such_a_flow_is_about_what_was_sent() {
    for family in far() {
        let world = family.world(1);
        let (_, foreign) = Foreign::of(&family, &world, false);
        let seen = foreign.sends(datagram()).unwrap();
        let quotes = |from| {
            let quoted = Build {
                from,
                to: foreign.endpoint,
                options: 0,
                payload: datagram(),
            };
            let kind = if from.is_ipv4() { 3 } else { 1 };
            Build {
                from: at(family.router),
                to: SocketAddr::new(seen.ip(), 0),
                options: 0,
                payload: Payload::Error(kind, quoted.into(), 64),
            }
        };
        let met = world.comes(&quotes(seen).bytes());
        assert_eq!(met, (Outcome::TRANSLATED, quotes(foreign.from).bytes()));
        let owners = world.maps(|maps| {
            let keys = maps.track.keys();
            let owners = keys.iter().map(|one| maps.track.get(one).unwrap().owner);
            owners.filter(|owner| *owner == FOREIGN).count()
        });
        assert_eq!(owners, 2);
    }
}

/// From where datagrams leave that are no client's, where clients dial a NodePort.
#[test]
fn what_answers_a_datagram_from_a_node_port_dials_nobody() {
    for family in EVERY {
        let world = family.world(1);
        world.serve_node_port(family.node, UDP, SET);
        if family.far {
            family.masquerade(&world);
        }
        let address = address::from_ip(at(family.node).ip());
        let own = NodeAddressKey { address };
        world.maps(|maps| maps.node_addresses.push(own));
        let asked = Client::new(&world, family.client, family.node);
        let asks = |port: u16, payload| {
            let build = Build {
                from: SocketAddr::new(asked.to.ip(), port),
                to: asked.from,
                options: 0,
                payload,
            };
            let (outcome, after) = world.leaves(&build.bytes());
            assert_eq!((outcome, after), (Outcome::UNTOUCHED, build.bytes()));
        };
        // An answer of TCP begins nothing, other ports are dialled by nobody, and this is not the node yet.
        asks(30_080, syn());
        asks(30_081, datagram());
        world.maps(|maps| maps.own_addresses.retain(|one| *one != own));
        asks(30_080, datagram());
        world.maps(|maps| assert_eq!(maps.opening.keys(), []));

        world.maps(|maps| maps.own_addresses.push(own));
        let wait = world.maps(|maps| maps.settings.udp_answered);
        for _ in 0..3 {
            asks(30_080, datagram());
            world.pass(wait - 1);
        }
        assert_eq!(
            asked.sends(datagram()),
            Err(Outcome::passed(Reason::Beneath))
        );
        let mut other = Client::new(&world, family.client, family.node);
        other.from.set_port(other.from.port() + 1);
        assert_eq!(other.sends(datagram()), Ok(at(family.endpoints[0])));
        world.pass(wait + 1);
        assert_eq!(asked.sends(datagram()), Ok(at(family.endpoints[0])));
        // A client's flow stays one.
        asks(30_080, datagram());
        assert_eq!(asked.sends(datagram()), Ok(at(family.endpoints[0])));
    }
}
