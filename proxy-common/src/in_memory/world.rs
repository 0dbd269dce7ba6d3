//! Maps in memory, and what the agent writes into them.

use std::{collections::HashMap, net::SocketAddr, vec::Vec};

use bytemuck::Zeroable as _;

use super::{
    cpu::Cpu,
    entries::Entries,
    interleaved::{Order, Shared},
};
use crate::{
    address,
    affinity::{AffinityValue, ClientKey},
    endpoint::Endpoint,
    frontend::{FrontendKey, FrontendValue, OUTSIDE_TO_LOCAL},
    node::NodeAddressKey,
    ranges::{RangeKey, RangeValue},
    track::{
        ConnectionKey, ConnectionValue, DIALLED, FragmentKey, FragmentValue, Prefix, Settings,
        Table, pair,
    },
};

/// Everything that programs read and write.
#[derive(Debug, Clone)]
pub struct Maps {
    /// FRONTENDS.
    pub frontends: HashMap<FrontendKey, FrontendValue>,
    /// SETS, SLOTS and MEMBERS.
    pub sets: HashMap<u32, Vec<Endpoint>>,
    /// What the program on the first of several CPUs chooses from: it looks there before the agent
    /// writes.
    pub sets_before: Option<HashMap<u32, Vec<Endpoint>>>,
    /// AFFINITY.
    pub clients: HashMap<ClientKey, AffinityValue>,
    /// NODE_ADDRS.
    pub node_addresses: Vec<NodeAddressKey>,
    /// RANGES.
    pub ranges: Vec<(RangeKey, RangeValue)>,
    /// SETTINGS.
    pub settings: Settings,
    /// TRACK.
    pub track: Entries,
    /// OPENING.
    pub opening: Entries,
    /// FRAGMENTS.
    pub fragments: HashMap<FragmentKey, FragmentValue>,
    /// Flows in TRACK, as programs count them.
    pub flows: i64,
    /// Seconds since boot.
    pub seconds: u32,
    /// How many random numbers were drawn.
    pub random: u32,
}

impl Maps {
    /// One of the two maps of flows.
    pub fn table(&mut self, table: Table) -> &mut Entries {
        match table {
            Table::Track => &mut self.track,
            Table::Opening => &mut self.opening,
        }
    }

    /// Keys of TRACK of which the flow's other entry is not there, or is of another flow.
    pub fn halves(&self) -> Vec<ConnectionKey> {
        let mut halves = self.track.keys();
        halves.retain(|key| {
            let mut value = self.track.get(key).unwrap();
            let (mut other, mut expected) = (*key, ConnectionValue::zeroed());
            pair::other(key, &value, &mut other, &mut expected);
            value = expected;
            self.track
                .get(&other)
                .is_none_or(|there| (there.serial, there.place()) != (value.serial, value.place()))
        });
        halves
    }

    /// Flows of TRACK, by their entries.
    pub fn dialled(&self) -> usize {
        let keys = self.track.keys().into_iter();
        keys.filter(|key| key.role == DIALLED).count()
    }
}

/// Numbers of the Settings here, in seconds.
pub const SETTINGS: Settings = Settings {
    seed: 7,
    flags: 0,
    most_flows: 1000,
    udp_unanswered: 30,
    udp_answered: 120,
    tcp_beneath: 60,
    tcp_established: 7200,
    tcp_half_closed: 300,
    tcp_closed: 10,
    tcp_reset: 5,
    pods: [Prefix {
        address: [0; 16],
        mask: [0; 16],
    }; 2],
};

/// The maps, and who reaches them.
pub struct World(Shared<Maps>);

impl Default for World {
    /// Empty maps.
    fn default() -> Self {
        let maps = Maps {
            frontends: HashMap::new(),
            sets: HashMap::new(),
            sets_before: None,
            clients: HashMap::new(),
            node_addresses: Vec::new(),
            ranges: Vec::new(),
            settings: SETTINGS,
            track: Entries::new(false),
            opening: Entries::new(true),
            fragments: HashMap::new(),
            flows: 0,
            seconds: 1000,
            random: 0,
        };
        Self::of(maps)
    }
}

impl World {
    /// These maps.
    pub fn of(maps: Maps) -> Self {
        Self(Shared::new(maps, 1, Order::new()))
    }

    /// The maps alone.
    pub fn into_maps(self) -> Maps {
        self.0.into_maps()
    }

    /// Looks at the maps, or changes them.
    pub fn maps<R>(&self, act: impl FnOnce(&mut Maps) -> R) -> R {
        self.0.now(act)
    }

    /// What a program sees while nothing else runs.
    pub fn alone(&self) -> Cpu<'_> {
        Cpu::new(&self.0, None)
    }

    /// Lets time pass.
    pub fn pass(&self, seconds: u32) {
        self.maps(|maps| maps.seconds += seconds);
    }

    /// A frontend of this protocol that leads to `set`. `flags` are changed in those of a usual one.
    pub fn serve(&self, at: &str, protocol: u8, set: u32) -> FrontendKey {
        let at: SocketAddr = at.parse().unwrap();
        let address = address::to_words(&address::from_ip(at.ip()));
        let key = FrontendKey::new(address, at.port(), protocol);
        self.put(key, |value| value.local_set = set);
        key
    }

    /// Changes a frontend.
    pub fn put(&self, key: FrontendKey, change: impl FnOnce(&mut FrontendValue)) {
        self.maps(|maps| {
            let usual = FrontendValue {
                service: 1,
                cluster_set: 0,
                local_set: 0,
                flags: OUTSIDE_TO_LOCAL,
                affinity: 0,
                check: 0,
            };
            let value = maps.frontends.entry(key).or_insert(usual);
            change(value);
            *value = value.sealed(&key);
        });
    }

    /// The endpoints of a set: their numbers and where they are.
    pub fn set(&self, set: u32, endpoints: &[(u32, &str)]) {
        let endpoints = endpoints.iter().map(|(number, at)| {
            let at: SocketAddr = at.parse().unwrap();
            Endpoint {
                number: *number,
                address: address::from_ip(at.ip()),
                port: at.port(),
                flags: 0,
            }
        });
        let endpoints = endpoints.collect();
        self.maps(|maps| maps.sets.insert(set, endpoints));
    }
}
