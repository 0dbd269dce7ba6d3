//! The flows that the entries of OPENING and TRACK are of. Pure: `kernel/edge/asked` reads the maps.
//!
//! ```text
//! OPENING ──> entries ─┐
//!                      ├──> Found, one for each flow ──> Flow (stage, Service)
//! TRACK ────> entries ─┘        └──> end: both entries go, from both maps
//! ```
//!
//! OPENING is read first: a flow that moves meanwhile is in TRACK before it leaves OPENING. Each entry
//! says all of who is connected with whom, so that a flow of which one is missing is seen, too.

pub mod carried;
pub mod end;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use proxy_backend::connections::{Census, Flow, Room, Stage, Which};
use proxy_common::{
    address,
    packet::rewrite::Place,
    socket::{TCP, UDP},
    track::{
        BENEATH, ConnectionKey, ConnectionValue, DIALLED, INSIDE, SNAT, Table, ended::are_done,
        seen,
    },
};
use proxy_model::{Protocol, ServicePortKey};

/// What tells a flow from every other. An address and port that were used again are another flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Who dialled.
    pub client: SocketAddr,
    /// What was dialled.
    pub frontend: SocketAddr,
    /// Where that leads.
    pub endpoint: SocketAddr,
    /// The serial of all entries.
    pub serial: u32,
}

/// What the second translation of a flow knows of it: protocol, client, endpoint and serial.
type Behind = (Protocol, SocketAddr, SocketAddr, u32);

impl Identity {
    /// The flow that an entry is of, in this protocol.
    fn of(protocol: Protocol, key: &ConnectionKey, value: &ConnectionValue) -> Self {
        let [source, destination, put] =
            [key.source(), key.destination(), value.place()].map(|place| at(&place));
        let (client, frontend, endpoint) = if key.role == DIALLED {
            (source, destination, put)
        } else {
            (destination, put, source)
        };
        Self {
            protocol,
            client,
            frontend,
            endpoint,
            serial: value.serial,
        }
    }

    /// The keys of its own entries, and of those for which its endpoint sees `source`: what takes new packets
    /// first.
    pub fn keys(&self, source: Option<SocketAddr>) -> impl Iterator<Item = ConnectionKey> {
        let [client, frontend, endpoint] = [self.client, self.frontend, self.endpoint].map(place);
        let protocol = if self.protocol == Protocol::Udp {
            UDP
        } else {
            TCP
        };
        let own = [
            ConnectionKey::new(&client, &frontend, protocol, DIALLED),
            ConnectionKey::new(&endpoint, &client, protocol, INSIDE),
        ];
        let second = source.map(place).map(|source| {
            [
                ConnectionKey::new(&client, &endpoint, protocol, INSIDE),
                ConnectionKey::new(&endpoint, &source, protocol, DIALLED),
            ]
        });
        own.into_iter().chain(second.into_iter().flatten())
    }

    const fn behind(&self) -> Behind {
        (self.protocol, self.client, self.endpoint, self.serial)
    }
}

/// What an entry of a second translation knows, and whom the endpoint sees.
fn second(
    protocol: Protocol,
    key: &ConnectionKey,
    value: &ConnectionValue,
) -> (Behind, SocketAddr) {
    let [source, destination, put] =
        [key.source(), key.destination(), value.place()].map(|place| at(&place));
    let (client, endpoint, seen) = if key.role == INSIDE {
        (source, destination, put)
    } else {
        (put, source, destination)
    };
    ((protocol, client, endpoint, value.serial), seen)
}

fn at(place: &Place) -> SocketAddr {
    let ip = address::to_ip(address::from_words(place.address));
    SocketAddr::new(ip, place.port)
}

fn place(at: SocketAddr) -> Place {
    Place::new(address::to_words(&address::from_ip(at.ip())), at.port())
}

/// What the entries of one flow say together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Number of the Service port.
    service: u32,
    /// Whether any entry is in TRACK.
    tracked: bool,
    /// Seen by the entries in TRACK, the client's last; and by those in OPENING.
    seen: [u32; 2],
    /// How far those in TRACK got.
    reached: [u32; 2],
    seen_opening: u32,
    /// When a packet last used an entry, in seconds since boot.
    last: u32,
}

impl Found {
    /// How far the flow has got; the same distinctions as `track::sweep::timeout` makes.
    fn stage(&self, protocol: Protocol) -> Stage {
        let [here, there] = self.seen;
        if !self.tracked {
            return if self.seen_opening & seen::ANSWERED == 0 {
                Stage::Opening
            } else {
                Stage::Answered
            };
        }
        if protocol == Protocol::Udp {
            Stage::Established
        } else if (here | there) & seen::RST != 0 {
            Stage::Broken
        } else if are_done(here, there, self.reached) {
            Stage::Closed
        } else if (here | there) & (seen::FIN | seen::REFUSED) != 0 {
            Stage::HalfClosed
        } else {
            Stage::Established
        }
    }
}

/// The flows that entries are of, as they are read.
#[derive(Debug, Default)]
pub struct Joined {
    /// The only client that counts.
    client: Option<IpAddr>,
    flows: HashMap<Identity, Found>,
    /// Whom endpoints see.
    sources: HashMap<Behind, SocketAddr>,
    beneath: u64,
    opening: u64,
    tracked: u64,
}

impl Joined {
    /// Nothing yet. Entries of other clients than those that are meant take no room.
    pub fn new(which: &Which) -> Self {
        Self {
            client: which.client,
            ..Self::default()
        }
    }

    /// Adds an entry. One that was caught while it was given to another key is nobody's.
    pub fn add(&mut self, table: Table, key: &ConnectionKey, value: &ConnectionValue) {
        match table {
            Table::Opening => self.opening += 1,
            Table::Track => self.tracked += u64::from(key.role == DIALLED),
        }
        if !value.holds_for(key) {
            return;
        }
        if value.owner == BENEATH {
            self.beneath += 1;
        }
        let protocol = match key.protocol {
            TCP => Protocol::Tcp,
            UDP => Protocol::Udp,
            _ => return,
        };
        if value.owner == SNAT {
            let (behind, source) = second(protocol, key, value);
            self.sources.insert(behind, source);
            return;
        }
        if !value.is_translated() {
            return;
        }
        let identity = Identity::of(protocol, key, value);
        if self.client.is_some_and(|only| only != identity.client.ip()) {
            return;
        }
        let flow = self.flows.entry(identity).or_insert(Found {
            service: value.service,
            tracked: false,
            seen: [0; 2],
            reached: [value.reached(key.role); 2],
            seen_opening: 0,
            last: value.last,
        });
        if table == Table::Track {
            flow.tracked = true;
            let at = usize::from(key.role == DIALLED);
            flow.seen[at] |= value.seen();
            flow.reached[at] = value.reached(key.role);
        } else {
            flow.seen_opening |= value.seen();
        }
        flow.last = flow.last.max(value.last);
    }

    /// The flows that are meant, with their Service ports: `name` says what the number of one, or else
    /// a frontend, stands for.
    pub fn chosen(
        &self,
        which: &Which,
        mut name: impl FnMut(&Identity, u32) -> Option<ServicePortKey>,
    ) -> impl Iterator<Item = (&Identity, &Found, Option<ServicePortKey>)> {
        self.flows.iter().filter_map(move |(identity, found)| {
            let service = name(identity, found.service);
            which
                .has_service(service.as_ref())
                .then_some((identity, found, service))
        })
    }

    /// The same, as they are told at `now` (seconds since boot): ordered.
    pub fn list(
        &self,
        which: &Which,
        now: u32,
        name: impl FnMut(&Identity, u32) -> Option<ServicePortKey>,
    ) -> Vec<Flow> {
        let chosen = self.chosen(which, name);
        let told = chosen.map(|(identity, found, service)| {
            let source = self.source(identity);
            identity.told(found, source, now, service)
        });
        let mut flows: Vec<_> = told.collect();
        flows.sort();
        flows
    }

    /// Whom the endpoint of a flow sees, if not the client.
    pub fn source(&self, flow: &Identity) -> Option<SocketAddr> {
        self.sources.get(&flow.behind()).copied()
    }

    /// All of them, and what they take of so many entries of OPENING and flows of TRACK. Nothing is
    /// known of packets here.
    pub fn census(&self, flows: Vec<Flow>, [opening, track]: [u64; 2]) -> Census {
        Census {
            flows,
            kept: Room {
                used: self.tracked,
                limit: track,
            },
            passing: Room {
                used: self.opening,
                limit: opening,
            },
            beneath: self.beneath,
            packets: None,
        }
    }
}

impl Identity {
    fn told(
        &self,
        found: &Found,
        source: Option<SocketAddr>,
        now: u32,
        service: Option<ServicePortKey>,
    ) -> Flow {
        Flow {
            frontend: self.frontend,
            protocol: self.protocol,
            client: self.client,
            source,
            endpoint: self.endpoint,
            stage: found.stage(self.protocol),
            // A program on another CPU may have read a later clock.
            idle: Duration::from_secs(now.saturating_sub(found.last).into()),
            service,
        }
    }
}
