//! The Service maps in the kernel.

pub mod batch;
mod trie;

use std::{borrow::BorrowMut, os::fd::AsFd as _};

use aya::{
    Ebpf, Pod,
    maps::{Array, HashMap, Map, MapData},
};
use proxy_common::{
    endpoint::{MemberKey, MemberValue, SetKey, SetValue, SlotKey, SlotValue},
    frontend::{FrontendKey, FrontendValue},
    node::{NodeAddressKey, NodeAddressValue},
    service::{ServiceKey, ServiceValue},
};

use self::trie::Ranges;
use super::error::of_io;
use super::{OpenError, syscalls::Table, with_causes};
use crate::entry::{Entries, Entry, Key, MapError, ServiceMaps};

/// Typed handles to the Service maps.
pub struct KernelMaps {
    services: Hash<ServiceKey, ServiceValue>,
    frontends: Hash<FrontendKey, FrontendValue>,
    sets: Hash<SetKey, SetValue>,
    slots: Hash<SlotKey, SlotValue>,
    members: Hash<MemberKey, MemberValue>,
    ranges: Ranges,
    node_addresses: Hash<NodeAddressKey, NodeAddressValue>,
    numbers: Array<MapData, u32>,
}

impl KernelMaps {
    /// Takes the handles out of a loaded object.
    pub fn take(ebpf: &mut Ebpf) -> Result<Self, OpenError> {
        Ok(Self {
            services: Hash::take(ebpf, "SERVICES")?,
            frontends: Hash::take(ebpf, "FRONTENDS")?,
            sets: Hash::take(ebpf, "SETS")?,
            slots: Hash::take(ebpf, "SLOTS")?,
            members: Hash::take(ebpf, "MEMBERS")?,
            ranges: Ranges::take(ebpf, "RANGES")?,
            node_addresses: Hash::take(ebpf, "NODE_ADDRS")?,
            numbers: ebpf
                .take_map("NUMBERS")
                .and_then(|map| map.try_into().ok())
                .ok_or_else(|| unusable("NUMBERS"))?,
        })
    }
}

/// A hash map.
struct Hash<K, V> {
    name: &'static str,
    map: HashMap<MapData, K, V>,
    /// The same map, to read many entries at once.
    table: Table<K, V>,
}

impl<K: Pod + bytemuck::Pod, V: Pod + bytemuck::Pod> Hash<K, V> {
    fn take(ebpf: &mut Ebpf, name: &'static str) -> Result<Self, OpenError> {
        let Some(Map::HashMap(data)) = ebpf.take_map(name) else {
            return Err(unusable(name));
        };
        let fd = data.fd().as_fd().try_clone_to_owned();
        let table = fd.and_then(Table::of);
        let table = table.map_err(|error| of_io(&error, &format!("opening map {name}")))?;
        let map = Map::HashMap(data).try_into();
        let map = map.map_err(|_| unusable(name))?;
        Ok(Self { name, map, table })
    }

    fn entries(&self) -> Result<Vec<(K, V)>, MapError> {
        batch::entries(&self.table).or_else(|error| {
            tracing::debug!(map = self.name, %error, "reading entry by entry");
            let entries: Result<_, _> = self.map.iter().collect();
            entries.map_err(|error| refused(self.name, "reading map", &error))
        })
    }
}

fn unusable(name: &str) -> OpenError {
    OpenError::Other(format!("the kernel object has no usable map {name}"))
}

/// Entries of a map by its variant of [`Entry`] and [`Key`].
macro_rules! for_map {
    ($self:ident, $value:expr, $enum:ident, |$map:ident, $parts:tt| $body:expr) => {
        match $value {
            $enum::Service $parts => { let $map = &mut $self.services.map; ($self.services.name, $body) }
            $enum::Frontend $parts => { let $map = &mut $self.frontends.map; ($self.frontends.name, $body) }
            $enum::Set $parts => { let $map = &mut $self.sets.map; ($self.sets.name, $body) }
            $enum::Slot $parts => { let $map = &mut $self.slots.map; ($self.slots.name, $body) }
            $enum::Member $parts => { let $map = &mut $self.members.map; ($self.members.name, $body) }
            $enum::Range $parts => { let $map = &mut $self.ranges.map; ($self.ranges.name, $body) }
            $enum::NodeAddress $parts => {
                let $map = &mut $self.node_addresses.map;
                ($self.node_addresses.name, $body)
            }
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

    fn entries(&self) -> Result<Entries, MapError> {
        Ok(Entries {
            services: self.services.entries()?,
            slots: self.slots.entries()?,
            members: self.members.entries()?,
            sets: self.sets.entries()?,
            ranges: self.ranges.entries()?,
            frontends: self.frontends.entries()?,
            node_addresses: self.node_addresses.entries()?,
        })
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
    let errno = match error {
        aya::maps::MapError::SyscallError(error) => error.io_error.raw_os_error(),
        _ => None,
    };
    MapError {
        map,
        operation,
        reason: with_causes(error),
        no_room: matches!(errno, Some(libc::E2BIG | libc::ENOMEM | libc::ENOSPC)),
    }
}
