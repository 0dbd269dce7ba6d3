//! One entry of the Service maps, and the maps as a place to write entries to.

use proxy_common::{
    endpoint::{MemberKey, MemberValue, SetKey, SetValue, SlotKey, SlotValue},
    frontend::{FrontendKey, FrontendValue},
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
    /// In FRONTENDS.
    Frontend(FrontendKey),
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
    /// In FRONTENDS.
    Frontend(FrontendKey, FrontendValue),
}

impl Entry {
    /// The entry's key.
    pub const fn key(&self) -> Key {
        match self {
            Self::Service(key, _) => Key::Service(*key),
            Self::Slot(key, _) => Key::Slot(*key),
            Self::Member(key, _) => Key::Member(*key),
            Self::Set(key, _) => Key::Set(*key),
            Self::Frontend(key, _) => Key::Frontend(*key),
        }
    }
}

/// The five Service maps and the number that outlives a restart. Every write is atomic for readers.
pub trait ServiceMaps {
    /// Inserts or replaces an entry.
    fn put(&mut self, entry: &Entry) -> Result<(), MapError>;

    /// Removes an entry; one that is not there is no error.
    fn remove(&mut self, key: &Key) -> Result<(), MapError>;

    /// Everything that is in the maps.
    fn entries(&self) -> Result<Vec<Entry>, MapError>;

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
}
