//! What the Service maps hold, as far as the agent needs to know to change it: kept in step with
//! every write, rebuilt from the maps on start and after any error.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::{IpAddr, SocketAddr},
};

use proxy_common::{
    frontend::{FrontendKey, FrontendValue},
    ranges::RangeKey,
};
use proxy_model::{Endpoint, ServicePortKey};

use super::entry::Key;

/// What the Service maps hold.
#[derive(Debug, Default)]
pub struct Programmed {
    /// Service ports.
    pub services: BTreeMap<ServicePortKey, ProgrammedService>,
    /// Frontends; `service` in the value says whose.
    pub frontends: HashMap<FrontendKey, FrontendValue>,
    /// Addresses on which NodePorts answer.
    pub node_addresses: BTreeSet<IpAddr>,
    /// Entries in use, by map.
    pub used: Usage,
}

/// What the Service maps hold for one Service port.
#[derive(Debug, Default, Clone)]
pub struct ProgrammedService {
    /// Its number.
    pub number: u32,
    /// Frontends written for it; another Service may have taken some over since.
    pub frontends: Vec<FrontendKey>,
    /// Numbers of its endpoints.
    pub endpoints: BTreeMap<SocketAddr, u32>,
    /// Its entries of RANGES.
    pub ranges: BTreeSet<RangeKey>,
    /// The cluster set, if it has one.
    pub cluster: Option<ProgrammedSet>,
    /// The local set, if it has one.
    pub local: Option<ProgrammedSet>,
}

/// One set of endpoints.
#[derive(Debug, Default, Clone)]
pub struct ProgrammedSet {
    /// Its number.
    pub number: u32,
    /// Endpoints by slot.
    pub slots: Vec<SocketAddr>,
    /// Slots by endpoint.
    pub index: HashMap<SocketAddr, u32>,
    /// Those of them that are on this node.
    here: HashSet<SocketAddr>,
}

impl ProgrammedSet {
    /// An empty set.
    pub fn new(number: u32) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    /// How many endpoints it holds.
    pub fn count(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("a map holds fewer than 2^32 entries")
    }

    /// The endpoints it holds that are not wanted; `wanted` is ordered.
    pub fn gone(&self, wanted: &[Endpoint]) -> Vec<SocketAddr> {
        let unwanted = |at: &&SocketAddr| {
            let found = wanted.binary_search_by_key(&**at, |endpoint| endpoint.address);
            found.is_err()
        };
        self.slots.iter().filter(unwanted).copied().collect()
    }

    /// Whether it says of an endpoint that it is on this node.
    pub fn is_here(&self, endpoint: &SocketAddr) -> bool {
        self.here.contains(endpoint)
    }

    /// Whether it says of all that are `wanted` what they say of where they are.
    pub fn places(&self, wanted: &[Endpoint]) -> bool {
        let mut wanted = wanted.iter();
        wanted.all(|endpoint| self.is_here(&endpoint.address) == endpoint.is_here())
    }

    /// Says of an endpoint whether it is on this node.
    pub fn place(&mut self, endpoint: SocketAddr, is_here: bool) {
        if is_here {
            self.here.insert(endpoint);
        } else {
            self.here.remove(&endpoint);
        }
    }

    /// Puts `new` in the slot of `old`.
    pub fn replace(&mut self, old: &SocketAddr, new: SocketAddr, is_here: bool) {
        if let Some(index) = self.index.remove(old) {
            self.slots[index as usize] = new;
            self.index.insert(new, index);
            self.here.remove(old);
            self.place(new, is_here);
        }
    }

    /// Removes an endpoint; the last one moves into its slot.
    pub fn remove(&mut self, address: &SocketAddr) {
        if let Some(index) = self.index.remove(address) {
            self.here.remove(address);
            self.slots.swap_remove(index as usize);
            if let Some(moved) = self.slots.get(index as usize) {
                self.index.insert(*moved, index);
            }
        }
    }

    /// As many of the wanted endpoints as there are slots now: those that the set holds, and new
    /// ones for those that it holds and nobody wants. Ordered, like `wanted`.
    pub fn fitting(&self, wanted: &[Endpoint]) -> Vec<Endpoint> {
        let holds = |endpoint: &&Endpoint| self.index.contains_key(&endpoint.address);
        let mut room = self.slots.len() - wanted.iter().filter(holds).count();
        let mut fitting = Vec::with_capacity(self.slots.len());
        for endpoint in wanted {
            if holds(&endpoint) {
                fitting.push(*endpoint);
            } else if let Some(left) = room.checked_sub(1) {
                room = left;
                fitting.push(*endpoint);
            }
        }
        fitting
    }

    /// Adds an endpoint in the next slot.
    pub fn push(&mut self, endpoint: SocketAddr, is_here: bool) {
        self.index.insert(endpoint, self.count());
        self.slots.push(endpoint);
        self.place(endpoint, is_here);
    }
}

/// How many entries of each map are in use, or needed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Entries of SERVICES.
    pub services: usize,
    /// Entries of FRONTENDS.
    pub frontends: usize,
    /// Entries of SETS.
    pub sets: usize,
    /// Entries of SLOTS.
    pub slots: usize,
    /// Entries of MEMBERS.
    pub members: usize,
    /// Entries of RANGES.
    pub ranges: usize,
    /// Entries of NODE_ADDRS.
    pub node_addresses: usize,
}

impl Usage {
    /// Pairs of map name and entries.
    pub fn by_map(&self) -> [(&'static str, usize); 7] {
        [
            ("SERVICES", self.services),
            ("FRONTENDS", self.frontends),
            ("SETS", self.sets),
            ("SLOTS", self.slots),
            ("MEMBERS", self.members),
            ("RANGES", self.ranges),
            ("NODE_ADDRS", self.node_addresses),
        ]
    }
}

impl Programmed {
    /// Notes one entry more or less in the map of `key`.
    pub fn note(&mut self, key: &Key, added: bool) {
        let used = &mut self.used;
        let count = match key {
            Key::Service(_) => &mut used.services,
            Key::Frontend(_) => &mut used.frontends,
            Key::Set(_) => &mut used.sets,
            Key::Slot(_) => &mut used.slots,
            Key::Member(_) => &mut used.members,
            Key::Range(_) => &mut used.ranges,
            Key::NodeAddress(_) => &mut used.node_addresses,
        };
        *count = if added {
            *count + 1
        } else {
            count.saturating_sub(1)
        };
    }

    /// Every number in use.
    pub fn numbers(&self) -> HashSet<u32> {
        let mut numbers = HashSet::new();
        for service in self.services.values() {
            numbers.insert(service.number);
            numbers.extend(service.endpoints.values());
            numbers.extend(service.sets().map(|set| set.number));
        }
        numbers
    }
}

impl ProgrammedService {
    /// Its sets.
    pub fn sets(&self) -> impl Iterator<Item = &ProgrammedSet> {
        self.cluster.iter().chain(&self.local)
    }
}
