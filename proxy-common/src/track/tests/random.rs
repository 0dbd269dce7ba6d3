//! Many clients in any order, while endpoints come and go, entries are evicted and swept, and time
//! passes: what holds all the time.

use std::{collections::HashMap, net::SocketAddr, vec, vec::Vec};

use proptest::prelude::*;

use super::{
    Client, EVERY, Family, World,
    journey::{ack, data, datagram, fin, rst, syn, taken},
};
use crate::{
    in_memory::Payload,
    socket::{TCP, UDP},
};

/// A client's port and whether it dials the second frontend.
type Who = (u16, bool);

#[derive(Debug, Clone)]
enum Op {
    /// All that makes a connection.
    Connect(Who),
    Syn(Who),
    Ack(Who),
    Data(Who),
    Fin(Who),
    Rst(Who),
    Ask(Who),
    /// From the endpoint that it went to last.
    EndpointEnds(Who),
    EndpointBreaks(Who),
    EndpointAnswers(Who),
    /// Those that are in.
    Lead([bool; 3]),
    Evict(usize),
    Pass(u32),
    Sweep,
}

fn op() -> impl Strategy<Value = Op> {
    let who = || (0..3_u16, any::<bool>());
    prop_oneof![
        4 => who().prop_map(Op::Connect),
        2 => who().prop_map(Op::Syn),
        2 => who().prop_map(Op::Ack),
        6 => who().prop_map(Op::Data),
        2 => who().prop_map(Op::Fin),
        1 => who().prop_map(Op::Rst),
        4 => who().prop_map(Op::Ask),
        2 => who().prop_map(Op::EndpointEnds),
        1 => who().prop_map(Op::EndpointBreaks),
        3 => who().prop_map(Op::EndpointAnswers),
        2 => any::<[bool; 3]>().prop_map(Op::Lead),
        4 => (0..8_usize).prop_map(Op::Evict),
        2 => prop_oneof![0..3_u32, 0..200_u32, 0..4000_u32].prop_map(Op::Pass),
        2 => Just(Op::Sweep),
    ]
}

/// What is known of the world from outside.
struct Model<'a> {
    world: &'a World,
    family: Family,
    led: [bool; 3],
    /// Where a client's packets of a protocol went last.
    went: HashMap<(Who, u8), SocketAddr>,
    /// Connections that were made and neither closed nor broken, and when they were used last.
    open: HashMap<Who, (SocketAddr, u32)>,
}

const ESTABLISHED: u32 = 7200;

impl Model<'_> {
    fn client(&self, who: Who) -> Client<'_> {
        let mut client = if who.1 {
            self.family.second(self.world)
        } else {
            self.family.client(self.world)
        };
        client.from.set_port(40000 + who.0);
        client
    }

    fn now(&self) -> u32 {
        self.world.maps(|maps| maps.seconds)
    }

    /// Where a client's open connection goes, if it is not idle for too long.
    fn open(&mut self, who: Who) -> Option<SocketAddr> {
        let now = self.now();
        self.open.retain(|_, (_, last)| now - *last <= ESTABLISHED);
        self.open.get(&who).map(|(endpoint, _)| *endpoint)
    }

    fn is_led(&self, endpoint: SocketAddr) -> bool {
        let all = self.family.endpoints.iter().zip(self.led);
        all.into_iter()
            .any(|(one, led)| led && super::journey::at(one) == endpoint)
    }

    /// Sends a packet; what it leads to answers, and the client hears it from whom it dialled.
    fn sends(&mut self, who: Who, payload: Payload) -> Option<SocketAddr> {
        let protocol = if matches!(payload, Payload::Tcp(..)) {
            TCP
        } else {
            UDP
        };
        let open = self.open(who).filter(|_| protocol == TCP);
        let client = self.client(who);
        let begins = payload == syn();
        let went = client.sends(payload);
        if let Some(endpoint) = open
            && (!begins || self.is_led(endpoint))
        {
            assert_eq!(went, Ok(endpoint), "an open connection");
            let now = self.now();
            self.open.insert(who, (endpoint, now));
        } else if protocol == TCP {
            self.open.remove(&who);
        }
        let endpoint = went.ok()?;
        self.went.insert((who, protocol), endpoint);
        let client = self.client(who);
        let is_tracked = self
            .world
            .maps(|maps| maps.track.get(&client.key(protocol)).is_some());
        let answer = match (protocol, is_tracked) {
            (UDP, _) => datagram(),
            (_, true) => ack(),
            (_, false) => taken(),
        };
        assert_eq!(client.hears(endpoint, answer), Ok(()), "what answers");
        Some(endpoint)
    }

    fn connects(&mut self, who: Who) {
        let Some(endpoint) = self.sends(who, syn()) else {
            return;
        };
        assert_eq!(self.sends(who, ack()), Some(endpoint));
        let client = self.client(who);
        let keys = [client.key(TCP), client.inside(endpoint, TCP)];
        let seen = keys.map(|key| self.world.maps(|maps| maps.track.get(&key).unwrap().seen()));
        // The packet that opens a connection may have come to one of which half is closed.
        if seen == [0, 0] {
            let now = self.now();
            self.open.insert(who, (endpoint, now));
        }
    }

    /// What an endpoint sends by itself. It is heard from whom its client dialled, or untouched.
    fn endpoint_sends(&mut self, who: Who, payload: Payload) {
        let Some(endpoint) = self.went.get(&(who, TCP)).copied() else {
            return;
        };
        let open = self.open(who);
        let client = self.client(who);
        // The other frontend of the same client may have this endpoint by now.
        let (inside, to) = (client.inside(endpoint, TCP), client.to);
        let of_another = self.world.maps(|maps| {
            let found = maps.track.get(&inside).or(maps.opening.get(&inside));
            found.is_some_and(|value| value.address != crate::address::from_ip(to.ip()))
        });
        if of_another {
            assert_eq!(open.filter(|open| *open == endpoint), None);
            return;
        }
        let heard = client.hears(endpoint, payload);
        if open == Some(endpoint) {
            assert_eq!(heard, Ok(()));
            let now = self.now();
            self.open.insert(who, (endpoint, now));
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Connect(who) => self.connects(who),
            Op::Syn(who) => {
                self.sends(who, syn());
            }
            Op::Ack(who) => {
                self.sends(who, ack());
            }
            Op::Data(who) => {
                self.sends(who, data());
            }
            Op::Fin(who) => {
                self.sends(who, fin());
                self.open.remove(&who);
            }
            Op::Rst(who) => {
                self.sends(who, rst());
                self.open.remove(&who);
            }
            Op::Ask(who) => {
                self.sends(who, datagram());
            }
            Op::EndpointEnds(who) => {
                self.endpoint_sends(who, fin());
                self.open.remove(&who);
            }
            Op::EndpointBreaks(who) => {
                self.endpoint_sends(who, rst());
                self.open.remove(&who);
            }
            Op::EndpointAnswers(who) => self.endpoint_sends(who, data()),
            Op::Lead(led) => {
                self.led = led;
                let left: Vec<_> = (0..3).filter(|index| led[*index]).collect();
                self.family.lead(self.world, &left);
            }
            Op::Evict(which) => self.world.maps(|maps| {
                let keys = maps.opening.keys();
                if let Some(key) = keys.get(which % keys.len().max(1)) {
                    maps.opening.remove(key);
                }
            }),
            Op::Pass(seconds) => self.world.pass(seconds),
            Op::Sweep => self.world.sweep(),
        }
        // Nobody else runs meanwhile: nothing is ever half.
        self.world.maps(|maps| {
            assert_eq!(maps.halves(), []);
            assert_eq!(usize::try_from(maps.flows), Ok(maps.dialled()));
        });
    }
}

proptest! {
    #[test]
    fn what_is_answered_is_heard_from_whom_was_dialled_and_what_is_open_stays_where_it_is(
        ops in proptest::collection::vec(op(), 1..80), v6 in any::<bool>(), sticky in any::<bool>(),
        room in 2..12_usize,
    ) {
        let family = EVERY[usize::from(v6)];
        let world = family.world(3);
        world.maps(|maps| {
            maps.opening.room = room;
            for (key, value) in &mut maps.frontends {
                value.affinity = if sticky { 100 } else { 0 };
                *value = value.sealed(key);
            }
        });
        let (went, open) = (HashMap::new(), HashMap::new());
        let mut model = Model { world: &world, family, led: [true; 3], went, open };
        for op in &ops {
            model.apply(op);
        }
        // In the end nothing stays of what nobody uses.
        world.pass(ESTABLISHED + 1);
        world.sweep();
        world.maps(|maps| assert_eq!((maps.flows, maps.track.keys()), (0, Vec::new())));
    }
}
