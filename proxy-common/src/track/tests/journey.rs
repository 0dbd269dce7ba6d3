//! The way of a packet: what a client sends and hears, as the hosts on both sides see it. Each packet
//! is compared with the one that its receiver must get, or, if it is not translated, with itself.

use std::{net::SocketAddr, vec::Vec};

use super::World;
use crate::{
    frontend::{MASQUERADED, MASQUERADED_ELSEWHERE, OUTSIDE_TO_CLUSTER},
    in_memory::{Build, Bytes, Hook, Payload, programs::sweeps},
    packet::{Version, parse::flags, rewrite::Place},
    socket::{TCP, UDP},
    track::{ConnectionKey, DIALLED, INSIDE, reason::Outcome},
};

/// Addresses of one IP version.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    pub(super) client: &'static str,
    pub(super) frontend: &'static str,
    /// Another frontend, of another Service, with the same endpoints.
    pub(super) second: &'static str,
    pub(super) endpoints: [&'static str; 3],
    pub(super) router: &'static str,
    pub(super) node: &'static str,
    /// Endpoints see this node in the place of clients, and are
    pub(super) far: bool,
    /// on this one themselves.
    pub(super) near: bool,
}

const V4: Family = Family {
    client: "198.51.100.7:40000",
    frontend: "192.0.2.10:80",
    second: "192.0.2.11:80",
    endpoints: ["10.1.0.1:8080", "10.1.0.2:8080", "10.1.0.3:8080"],
    router: "203.0.113.1:0",
    node: "192.0.2.1:30080",
    far: false,
    near: false,
};
const V6: Family = Family {
    client: "[2001:db8:7::7]:40000",
    frontend: "[2001:db8::10]:80",
    second: "[2001:db8::11]:80",
    endpoints: ["[fd00::1]:8080", "[fd00::2]:8080", "[fd00::3]:8080"],
    router: "[2001:db8:9::1]:0",
    node: "[2001:db8::1]:30080",
    far: false,
    near: false,
};

/// Both IP versions, with endpoints here that see the client, elsewhere, and in pods that see this node.
pub(super) const EVERY: [Family; 6] = [
    V4,
    V6,
    V4.elsewhere(),
    V6.elsewhere(),
    V4.in_pods(),
    V6.in_pods(),
];
/// The devices by which packets leave for other nodes, and for pods.
pub(super) const WIRE: u32 = 3;
pub(super) const POD: u32 = 5;
/// The same, with endpoints on this node.
pub(super) const BOTH: [Family; 2] = [V4, V6];

/// The set of [`Family::frontend`]; that of [`Family::second`] is the next.
pub(super) const SET: u32 = 1;

impl Family {
    /// The same, with endpoints on other nodes.
    const fn elsewhere(mut self) -> Self {
        self.far = true;
        self
    }

    /// The same, with endpoints on this node that see it in the place of clients.
    const fn in_pods(mut self) -> Self {
        self.far = true;
        self.near = true;
        self
    }

    /// A world with the first endpoints behind both frontends, over TCP and UDP.
    pub(super) fn world(&self, endpoints: usize) -> World {
        let world = World::default();
        for protocol in [TCP, UDP] {
            world.serve(self.frontend, protocol, SET);
            let second = world.serve(self.second, protocol, SET + 1);
            world.put(second, |value| value.service = 2);
        }
        if self.far {
            self.masquerade(&world);
        }
        let numbers: Vec<_> = (0..endpoints).collect();
        self.lead(&world, &numbers);
        world
    }

    /// All frontends lead to endpoints elsewhere, which see this node.
    pub(super) fn masquerade(&self, world: &World) {
        let keys: Vec<_> = world.maps(|maps| maps.frontends.keys().copied().collect());
        for key in keys {
            world.put(key, |value| {
                let seen = if self.near {
                    MASQUERADED
                } else {
                    MASQUERADED_ELSEWHERE
                };
                value.flags = OUTSIDE_TO_CLUSTER | seen;
                value.cluster_set = value.local_set.max(value.cluster_set);
                value.local_set = 0;
            });
        }
        let device = if self.near { POD } else { WIRE };
        world.leave_by(device, self.router, &[(self.node, 24)]);
    }

    /// Makes these the endpoints; their numbers are these plus 10.
    pub(super) fn lead(&self, world: &World, endpoints: &[usize]) {
        let all = endpoints.iter().map(|index| {
            let number = 10 + u32::try_from(*index).unwrap();
            (number, self.endpoints[*index])
        });
        let all: Vec<_> = all.collect();
        world.set(SET, &all);
        world.set(SET + 1, &all);
    }

    /// As what a flow counts: one to an endpoint elsewhere is translated twice.
    pub(super) const fn counts(&self) -> i64 {
        1 + self.far as i64
    }

    /// Entries of so many flows.
    pub(super) const fn entries(&self, flows: usize) -> usize {
        flows * 2 * (1 + self.far as usize)
    }

    pub(super) fn client<'a>(&self, world: &'a World) -> Client<'a> {
        Client::new(world, self.client, self.frontend)
    }

    /// From the same port to the second frontend.
    pub(super) fn second<'a>(&self, world: &'a World) -> Client<'a> {
        Client::new(world, self.client, self.second)
    }

    /// All but `gone` of the first `count`.
    pub(super) fn lead_without(&self, world: &World, count: usize, gone: SocketAddr) {
        let mut left: Vec<_> = (0..count).collect();
        left.retain(|index| at(self.endpoints[*index]) != gone);
        self.lead(world, &left);
    }
}

pub(super) fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// What the endpoint begins with.
pub(super) const BEGIN: u32 = 5000;

/// TCP with these flags and numbers, without data.
pub(super) fn tcp(seen: u32, sequence: u32, acknowledged: u32) -> Payload {
    Payload::Tcp(seen, sequence, acknowledged, Vec::new())
}

pub(super) fn syn() -> Payload {
    tcp(flags::SYN, 1000, 0)
}

pub(super) fn taken() -> Payload {
    tcp(flags::SYN | flags::ACK, BEGIN, 1001)
}

pub(super) fn ack() -> Payload {
    tcp(flags::ACK, 1001, BEGIN + 1)
}

pub(super) fn data() -> Payload {
    Payload::Tcp(flags::ACK, 1001, BEGIN + 1, b"some data".to_vec())
}

pub(super) fn fin() -> Payload {
    tcp(flags::ACK | flags::FIN, 1001, BEGIN + 1)
}

/// What an endpoint says that has a client's FIN.
pub(super) fn acked() -> Payload {
    tcp(flags::ACK, 1002, BEGIN + 1)
}

/// The same, of one that was done before.
pub(super) fn acked_last() -> Payload {
    tcp(flags::ACK, 1002, BEGIN + 2)
}

/// What an endpoint says that is done once it has a client's FIN.
pub(super) fn fin_too() -> Payload {
    tcp(flags::ACK | flags::FIN, 1002, BEGIN + 1)
}

pub(super) fn rst() -> Payload {
    tcp(flags::RST, 1001, BEGIN + 1)
}

pub(super) fn datagram() -> Payload {
    Payload::Udp(b"datagram".to_vec())
}

/// What an endpoint sends with this number of its own, and that of the client.
pub(super) fn answer(seen: u32, sequence: u32, acknowledged: u32) -> Payload {
    tcp(seen, acknowledged, sequence)
}

/// What an endpoint sends where the client would send this: the numbers change places.
fn of_endpoint(payload: Payload) -> Payload {
    match payload {
        Payload::Tcp(seen, sequence, acknowledged, data) if seen & flags::SYN == 0 => {
            Payload::Tcp(seen, acknowledged, sequence, data)
        }
        other => other,
    }
}

/// The IP version of a packet in memory.
pub(super) fn version(packet: &Bytes) -> Version {
    if packet.0[0] >> 4 == 4 {
        Version::V4
    } else {
        Version::V6
    }
}

impl World {
    /// What becomes of a packet that comes in.
    pub(super) fn comes(&self, packet: &Bytes) -> (Outcome, Bytes) {
        Hook::Ingress.meets(&self.alone(), version(packet), packet)
    }

    /// What becomes of one that leaves for an endpoint which sees this node.
    pub(super) fn leaves_for_endpoint(&self, packet: &Bytes) -> (Outcome, Bytes) {
        let hook = if self.is_in_pod() {
            Hook::ToPod
        } else {
            Hook::Egress
        };
        hook.meets(&self.alone(), version(packet), packet)
    }

    /// What becomes of one that comes from such an endpoint.
    pub(super) fn comes_from_endpoint(&self, packet: &Bytes) -> (Outcome, Bytes) {
        let hook = if self.is_in_pod() {
            Hook::FromPod
        } else {
            Hook::Ingress
        };
        hook.meets(&self.alone(), version(packet), packet)
    }

    fn is_in_pod(&self) -> bool {
        self.maps(|maps| maps.way.0 == POD)
    }

    /// What becomes of a packet that goes out.
    pub(super) fn leaves(&self, packet: &Bytes) -> (Outcome, Bytes) {
        Hook::Egress.meets(&self.alone(), version(packet), packet)
    }
}

/// A client's port, and whom it dials.
#[derive(Clone, Copy)]
pub(super) struct Client<'a> {
    pub(super) world: &'a World,
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
}

/// Where a packet went, or why it did not.
pub(super) type Went = Result<SocketAddr, Outcome>;

impl<'a> Client<'a> {
    pub(super) fn new(world: &'a World, from: &str, to: &str) -> Self {
        let (from, to) = (at(from), at(to));
        Self { world, from, to }
    }

    /// From the same port to the endpoint itself.
    pub(super) fn itself(self, endpoint: SocketAddr) -> Self {
        Self {
            to: endpoint,
            ..self
        }
    }

    pub(super) fn build(&self, payload: Payload) -> Build {
        Build {
            from: self.from,
            to: self.to,
            options: 0,
            payload,
        }
    }

    /// Sends a packet. The endpoint gets what the client would have sent it.
    pub(super) fn sends(&self, payload: Payload) -> Went {
        self.sends_as(&self.build(payload))
    }

    pub(super) fn sends_as(&self, build: &Build) -> Went {
        let (outcome, after) = self.world.comes(&build.bytes());
        if outcome != Outcome::TRANSLATED {
            return Err(outcome);
        }
        let endpoint = receiver(&after, build.options);
        let expected = Build {
            to: endpoint,
            ..build.clone()
        };
        assert_eq!(after, expected.bytes());
        if self.world.maps(|maps| maps.way.0 != 0) {
            self.leaves(&expected);
        }
        Ok(endpoint)
    }

    /// A packet to an endpoint on another node leaves as from this one.
    fn leaves(&self, build: &Build) {
        let (outcome, after) = self.world.leaves_for_endpoint(&build.bytes());
        assert_eq!(outcome, Outcome::TRANSLATED);
        let source = sender(&after, build.options);
        let expected = Build {
            from: source,
            ..build.clone()
        };
        assert_eq!(after, expected.bytes());
        let is_node = self.world.maps(|maps| {
            let mut all = maps.sources.values();
            all.any(|one| crate::address::to_ip(one.address) == source.ip())
        });
        assert!(is_node, "{source}");
        let who = (self.from, build.to, build.payload.is_tcp());
        self.world.maps(|maps| maps.seen_as.insert(who, source));
    }

    /// An endpoint sends a packet. Whether the client hears it from whom it dialled.
    pub(super) fn hears(&self, endpoint: SocketAddr, payload: Payload) -> Result<(), Outcome> {
        let mut reply = Build {
            from: endpoint,
            to: self.from,
            options: 0,
            payload: of_endpoint(payload),
        };
        let who = (self.from, endpoint, reply.payload.is_tcp());
        if let Some(source) = self.world.maps(|maps| maps.seen_as.get(&who).copied()) {
            let (outcome, after) = self.world.comes_from_endpoint(
                &Build {
                    to: source,
                    ..reply.clone()
                }
                .bytes(),
            );
            if outcome != Outcome::TRANSLATED {
                return Err(outcome);
            }
            reply.to = receiver(&after, 0);
            assert_eq!(after, reply.bytes());
        }
        let (outcome, after) = self.world.leaves(&reply.bytes());
        if outcome != Outcome::TRANSLATED {
            return Err(outcome);
        }
        let expected = Build {
            from: self.to,
            ..reply
        };
        assert_eq!(after, expected.bytes());
        Ok(())
    }

    /// A connection is made. Returns to whom.
    pub(super) fn connects(&self) -> SocketAddr {
        let endpoint = self.sends(syn()).unwrap();
        self.hears(endpoint, taken()).unwrap();
        assert_eq!(self.sends(ack()), Ok(endpoint));
        endpoint
    }

    /// What was seen of it, once its connection is answered.
    pub(super) fn noted(&self) -> u32 {
        let value = self.world.maps(|maps| maps.track.get(&self.key(TCP)));
        value.unwrap().seen()
    }

    /// Whether a sweep takes its connection.
    pub(super) fn is_swept(&self) -> bool {
        sweeps(&self.world.alone(), self.key(TCP))
    }

    /// A question is answered often enough. Returns by whom.
    pub(super) fn asks(&self) -> SocketAddr {
        let endpoint = self.sends(datagram()).unwrap();
        self.hears(endpoint, datagram()).unwrap();
        self.hears(endpoint, datagram()).unwrap();
        endpoint
    }

    pub(super) fn key(&self, protocol: u8) -> ConnectionKey {
        key(self.from, self.to, protocol, DIALLED)
    }

    pub(super) fn inside(&self, endpoint: SocketAddr, protocol: u8) -> ConnectionKey {
        key(endpoint, self.from, protocol, INSIDE)
    }
}

pub(super) fn key(from: SocketAddr, to: SocketAddr, protocol: u8, role: u8) -> ConnectionKey {
    let place = |at: SocketAddr| {
        let address = crate::address::from_ip(at.ip());
        Place::new(crate::address::to_words(&address), at.port())
    };
    ConnectionKey::new(&place(from), &place(to), protocol, role)
}

/// Whom a packet in memory is from.
pub(super) fn sender(packet: &Bytes, options: usize) -> SocketAddr {
    let bytes = &packet.0;
    let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    match version(packet) {
        Version::V4 => {
            let ip: [u8; 4] = bytes[12..16].try_into().unwrap();
            SocketAddr::new(ip.into(), port(20 + options))
        }
        Version::V6 => {
            let ip: [u8; 16] = bytes[8..24].try_into().unwrap();
            SocketAddr::new(ip.into(), port(40 + options))
        }
    }
}

/// Whom a packet in memory is for.
pub(super) fn receiver(packet: &Bytes, options: usize) -> SocketAddr {
    let bytes = &packet.0;
    let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    match version(packet) {
        Version::V4 => {
            let ip: [u8; 4] = bytes[16..20].try_into().unwrap();
            SocketAddr::new(ip.into(), port(22 + options))
        }
        Version::V6 => {
            let ip: [u8; 16] = bytes[24..40].try_into().unwrap();
            SocketAddr::new(ip.into(), port(42 + options))
        }
    }
}
