//! Entries of the Service maps, and the maps as a place to write entries to.

use proxy_common::{
    endpoint::{MemberKey, MemberValue, SetKey, SetValue, SlotKey, SlotValue},
    frontend::{FrontendKey, FrontendValue},
    node::{NodeAddressKey, NodeAddressValue},
    ranges::{RangeKey, RangeValue},
    service::{ServiceKey, ServiceValue},
};
use thiserror::Error;

/// Key of an entry. Ordered so that what is pointed to comes before what points to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// In SERVICES.
    Service(ServiceKey),
    /// In SLOTS.
    Slot(SlotKey),
    /// In MEMBERS.
    Member(MemberKey),
    /// In SETS.
    Set(SetKey),
    /// In RANGES.
    Range(RangeKey),
    /// In FRONTENDS.
    Frontend(FrontendKey),
    /// In NODE_ADDRS.
    NodeAddress(NodeAddressKey),
}

/// An entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// In SERVICES.
    Service(ServiceKey, ServiceValue),
    /// In SLOTS.
    Slot(SlotKey, SlotValue),
    /// In MEMBERS.
    Member(MemberKey, MemberValue),
    /// In SETS.
    Set(SetKey, SetValue),
    /// In RANGES.
    Range(RangeKey, RangeValue),
    /// In FRONTENDS.
    Frontend(FrontendKey, FrontendValue),
    /// In NODE_ADDRS.
    NodeAddress(NodeAddressKey, NodeAddressValue),
}

impl Entry {
    /// The entry's key.
    pub const fn key(&self) -> Key {
        match self {
            Self::Service(key, _) => Key::Service(*key),
            Self::Slot(key, _) => Key::Slot(*key),
            Self::Member(key, _) => Key::Member(*key),
            Self::Set(key, _) => Key::Set(*key),
            Self::Range(key, _) => Key::Range(*key),
            Self::Frontend(key, _) => Key::Frontend(*key),
            Self::NodeAddress(key, _) => Key::NodeAddress(*key),
        }
    }
}

/// All entries of the Service maps, map by map: a cluster has some hundred thousand, and as
/// [`Entry`] each would take as much memory as the largest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entries {
    /// Of SERVICES.
    pub services: Vec<(ServiceKey, ServiceValue)>,
    /// Of SLOTS.
    pub slots: Vec<(SlotKey, SlotValue)>,
    /// Of MEMBERS.
    pub members: Vec<(MemberKey, MemberValue)>,
    /// Of SETS.
    pub sets: Vec<(SetKey, SetValue)>,
    /// Of RANGES.
    pub ranges: Vec<(RangeKey, RangeValue)>,
    /// Of FRONTENDS.
    pub frontends: Vec<(FrontendKey, FrontendValue)>,
    /// Of NODE_ADDRS.
    pub node_addresses: Vec<(NodeAddressKey, NodeAddressValue)>,
}

impl FromIterator<Entry> for Entries {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        let mut all = Self::default();
        for entry in entries {
            match entry {
                Entry::Service(key, value) => all.services.push((key, value)),
                Entry::Slot(key, value) => all.slots.push((key, value)),
                Entry::Member(key, value) => all.members.push((key, value)),
                Entry::Set(key, value) => all.sets.push((key, value)),
                Entry::Range(key, value) => all.ranges.push((key, value)),
                Entry::Frontend(key, value) => all.frontends.push((key, value)),
                Entry::NodeAddress(key, value) => all.node_addresses.push((key, value)),
            }
        }
        all
    }
}

/// The Service maps that the agent writes, and the number that outlives a restart. Every write is atomic for readers.
pub trait ServiceMaps {
    /// Inserts or replaces an entry.
    fn put(&mut self, entry: &Entry) -> Result<(), MapError>;

    /// Removes an entry; one that is not there is no error.
    fn remove(&mut self, key: &Key) -> Result<(), MapError>;

    /// Everything that is in the maps.
    fn entries(&self) -> Result<Entries, MapError>;

    /// First number that was never given out, as last reserved.
    fn reserved_numbers(&self) -> Result<u32, MapError>;

    /// Reserves all numbers below `end`.
    fn reserve_numbers(&mut self, end: u32) -> Result<(), MapError>;
}

/// A map operation that the kernel refused.
#[derive(Debug, Error)]
#[error("{operation} {map}: {reason}")]
pub struct MapError {
    /// The map's name.
    pub map: &'static str,
    /// What was attempted.
    pub operation: &'static str,
    /// The kernel's answer.
    pub reason: String,
    /// There is no room for one more entry, or no memory for it: what needs none still succeeds.
    pub no_room: bool,
}
