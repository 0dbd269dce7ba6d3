//! The Service maps in the kernel.

use std::{borrow::BorrowMut, fs, os::fd::AsRawFd, path::Path};

use aya::{
    Ebpf,
    maps::{Array, HashMap, MapData},
};
use proxy_common::{
    endpoint::{MemberKey, MemberValue, SetKey, SetValue, SlotKey, SlotValue},
    frontend::{FrontendKey, FrontendValue},
    service::{ServiceKey, ServiceValue},
};

use super::{
    OpenError,
    entry::{Entry, Key, MapError, ServiceMaps},
    with_causes,
};

/// Typed handles to the Service maps.
pub struct KernelMaps {
    services: HashMap<MapData, ServiceKey, ServiceValue>,
    frontends: HashMap<MapData, FrontendKey, FrontendValue>,
    sets: HashMap<MapData, SetKey, SetValue>,
    slots: HashMap<MapData, SlotKey, SlotValue>,
    members: HashMap<MapData, MemberKey, MemberValue>,
    numbers: Array<MapData, u32>,
}

impl KernelMaps {
    /// Takes the handles out of a loaded object.
    pub fn take(ebpf: &mut Ebpf) -> Result<Self, OpenError> {
        macro_rules! take {
            ($name:literal) => {
                ebpf.take_map($name)
                    .and_then(|map| map.try_into().ok())
                    .ok_or_else(|| {
                        OpenError::Other(format!("the kernel object has no usable map {}", $name))
                    })?
            };
        }
        Ok(Self {
            services: take!("SERVICES"),
            frontends: take!("FRONTENDS"),
            sets: take!("SETS"),
            slots: take!("SLOTS"),
            members: take!("MEMBERS"),
            numbers: take!("NUMBERS"),
        })
    }
}

/// Entries of a map by its variant of [`Entry`] and [`Key`].
macro_rules! for_map {
    ($self:ident, $value:expr, $enum:ident, |$map:ident, $parts:tt| $body:expr) => {
        match $value {
            $enum::Service $parts => { let ($map, name) = (&mut $self.services, "SERVICES"); (name, $body) }
            $enum::Frontend $parts => { let ($map, name) = (&mut $self.frontends, "FRONTENDS"); (name, $body) }
            $enum::Set $parts => { let ($map, name) = (&mut $self.sets, "SETS"); (name, $body) }
            $enum::Slot $parts => { let ($map, name) = (&mut $self.slots, "SLOTS"); (name, $body) }
            $enum::Member $parts => { let ($map, name) = (&mut $self.members, "MEMBERS"); (name, $body) }
        }
    };
}

impl ServiceMaps for KernelMaps {
    fn put(&mut self, entry: &Entry) -> Result<(), MapError> {
        let (map, result) = for_map!(self, entry, Entry, |map, (key, value)| {
            map.borrow_mut().insert(key, value, 0)
        });
        result.map_err(|error| refused(map, "writing to map", &error))
    }

    fn remove(&mut self, key: &Key) -> Result<(), MapError> {
        let (map, result) = for_map!(self, key, Key, |map, (key)| map.borrow_mut().remove(key));
        match result {
            Err(aya::maps::MapError::KeyNotFound) | Ok(()) => Ok(()),
            Err(error) => Err(refused(map, "removing from map", &error)),
        }
    }

    fn entries(&self) -> Result<Vec<Entry>, MapError> {
        let mut entries = Vec::new();
        macro_rules! collect {
            ($map:ident, $variant:ident, $name:literal) => {
                for entry in self.$map.iter() {
                    let (key, value) =
                        entry.map_err(|error| refused($name, "reading map", &error))?;
                    entries.push(Entry::$variant(key, value));
                }
            };
        }
        collect!(services, Service, "SERVICES");
        collect!(frontends, Frontend, "FRONTENDS");
        collect!(sets, Set, "SETS");
        collect!(slots, Slot, "SLOTS");
        collect!(members, Member, "MEMBERS");
        Ok(entries)
    }

    fn reserved_numbers(&self) -> Result<u32, MapError> {
        self.numbers
            .get(&0, 0)
            .map_err(|error| refused("NUMBERS", "reading map", &error))
    }

    fn reserve_numbers(&mut self, end: u32) -> Result<(), MapError> {
        self.numbers
            .set(0, end, 0)
            .map_err(|error| refused("NUMBERS", "writing to map", &error))
    }
}

fn refused(map: &'static str, operation: &'static str, error: &aya::maps::MapError) -> MapError {
    MapError {
        map,
        operation,
        reason: with_causes(error),
    }
}

/// Kernel memory of the map pinned at `path` in bytes, as the kernel accounts it; before Linux
/// 6.4 that is an estimate from its size. `None` when the map or the figure is missing.
pub fn memory(path: &Path) -> Option<u64> {
    let map = super::syscalls::open_pinned(path).ok()?;
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", map.as_raw_fd())).ok()?;
    info.lines()
        .find_map(|line| line.strip_prefix("memlock:")?.trim().parse().ok())
}
