//! Maps in memory, and what the agent writes into them.

use std::{collections::HashMap, net::SocketAddr, vec::Vec};

use bytemuck::Zeroable as _;

use super::{cpu::Cpu, entries::Entries};
use crate::{
    address,
    affinity::{AffinityValue, ClientKey},
    endpoint::Endpoint,
    frontend::{FrontendKey, FrontendValue, OUTSIDE_TO_LOCAL},
    interleaved::{Order, Shared},
    node::NodeAddressKey,
    track::{
        ConnectionKey, ConnectionValue, DIALLED, FragmentKey, FragmentValue, Prefix, Settings,
        Table, pair,
    },
};

/// Everything that programs read and write.
#[derive(Debug, Clone)]
pub(crate) struct Maps {
    pub(super) frontends: HashMap<FrontendKey, FrontendValue>,
    pub(super) sets: HashMap<u32, Vec<Endpoint>>,
    /// What the program on the first of several CPUs chooses from: it looks there before the agent
    /// writes.
    pub(super) sets_before: Option<HashMap<u32, Vec<Endpoint>>>,
    pub(super) clients: HashMap<ClientKey, AffinityValue>,
    pub(super) node_addresses: Vec<NodeAddressKey>,
    pub(super) settings: Settings,
    pub(super) track: Entries,
    pub(super) opening: Entries,
    pub(super) fragments: HashMap<FragmentKey, FragmentValue>,
    pub(super) flows: i64,
    pub(super) seconds: u32,
    pub(super) random: u32,
}

impl Maps {
    pub(super) fn table(&mut self, table: Table) -> &mut Entries {
        match table {
            Table::Track => &mut self.track,
            Table::Opening => &mut self.opening,
        }
    }

    /// Keys of TRACK of which the flow's other entry is not there, or is of another flow.
    pub(super) fn halves(&self) -> Vec<ConnectionKey> {
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
    pub(super) fn dialled(&self) -> usize {
        let keys = self.track.keys().into_iter();
        keys.filter(|key| key.role == DIALLED).count()
    }
}

/// Numbers of the Settings here, in seconds.
pub(super) const SETTINGS: Settings = Settings {
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
pub(crate) struct World(Shared<Maps>);

impl World {
    pub(super) fn new() -> Self {
        let maps = Maps {
            frontends: HashMap::new(),
            sets: HashMap::new(),
            sets_before: None,
            clients: HashMap::new(),
            node_addresses: Vec::new(),
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

    pub(super) fn of(maps: Maps) -> Self {
        Self(Shared::new(maps, 1, Order::new()))
    }

    pub(super) fn into_maps(self) -> Maps {
        self.0.into_maps()
    }

    /// Looks at the maps, or changes them.
    pub(super) fn maps<R>(&self, act: impl FnOnce(&mut Maps) -> R) -> R {
        self.0.now(act)
    }

    /// What a program sees while nothing else runs.
    pub(super) fn alone(&self) -> Cpu<'_> {
        Cpu::new(&self.0, None)
    }

    pub(super) fn pass(&self, seconds: u32) {
        self.maps(|maps| maps.seconds += seconds);
    }

    /// A frontend of this protocol that leads to `set`. `flags` are changed in those of a usual one.
    pub(super) fn serve(&self, at: &str, protocol: u8, set: u32) -> FrontendKey {
        let at: SocketAddr = at.parse().unwrap();
        let address = address::to_words(&address::from_ip(at.ip()));
        let key = FrontendKey::new(address, at.port(), protocol);
        self.put(key, |value| value.local_set = set);
        key
    }

    /// Changes a frontend.
    pub(super) fn put(&self, key: FrontendKey, change: impl FnOnce(&mut FrontendValue)) {
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
    pub(super) fn set(&self, set: u32, endpoints: &[(u32, &str)]) {
        let endpoints = endpoints.iter().map(|(number, at)| {
            let at: SocketAddr = at.parse().unwrap();
            Endpoint {
                number: *number,
                address: address::from_ip(at.ip()),
                port: at.port(),
                padding: 0,
            }
        });
        let endpoints = endpoints.collect();
        self.maps(|maps| maps.sets.insert(set, endpoints));
    }
}
