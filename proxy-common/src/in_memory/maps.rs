//! Maps in memory.

use std::{collections::HashMap, net::SocketAddr, vec::Vec};

use bytemuck::Zeroable as _;

use super::entries::Entries;
use crate::{
    affinity::{AffinityValue, ClientKey},
    endpoint::Endpoint,
    frontend::{FrontendKey, FrontendValue},
    node::NodeAddressKey,
    packet::Words,
    ranges::{RangeKey, RangeValue},
    track::{
        ConnectionKey, ConnectionValue, DIALLED, FragmentKey, FragmentValue, Prefix, Settings,
        SourceKey, SourceValue, Table, pair,
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
    /// SOURCES.
    pub sources: HashMap<SourceKey, SourceValue>,
    /// OWN_ADDRS.
    pub own_addresses: Vec<NodeAddressKey>,
    /// PORTS.
    pub reserved: Vec<u16>,
    /// The device by which all that is sent elsewhere leaves, and the next hop there.
    pub way: (u32, Words),
    /// What the sockets of this node get.
    pub sockets: Vec<ConnectionKey>,
    /// No map: as whom endpoints elsewhere saw a client last, over TCP or not.
    pub seen_as: HashMap<(SocketAddr, SocketAddr, bool), SocketAddr>,
    /// Flows in TRACK, as programs count them.
    pub flows: i64,
    /// Seconds since boot.
    pub seconds: u32,
    /// How many random numbers were drawn.
    pub random: u32,
}

impl Default for Maps {
    /// Empty maps.
    fn default() -> Self {
        Self {
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
            sources: HashMap::new(),
            own_addresses: Vec::new(),
            reserved: Vec::new(),
            way: (0, [0; 4]),
            sockets: Vec::new(),
            seen_as: HashMap::new(),
            flows: 0,
            seconds: 1000,
            random: 0,
        }
    }
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
    first_port: 32768,
    last_port: 65535,
    pods: [Prefix {
        address: [0; 16],
        mask: [0; 16],
    }; 2],
};
