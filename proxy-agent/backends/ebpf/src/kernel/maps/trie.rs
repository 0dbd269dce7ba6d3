//! RANGES in the kernel: a trie, which aya knows by a key of its own.

use std::{borrow::Borrow, os::fd::AsFd as _};

use aya::{
    Ebpf,
    maps::{
        Map, MapData, MapError as KernelError,
        lpm_trie::{Key, LpmTrie},
    },
};
use proxy_common::ranges::{RangeData, RangeKey, RangeValue};

use super::{
    super::{OpenError, error::of_io, syscalls::Table},
    batch, refused, unusable,
};
use crate::entry::MapError;

/// The trie of source ranges.
pub struct Ranges {
    pub name: &'static str,
    pub map: Trie,
    /// The same map, to read many entries at once (Linux 5.13).
    table: Table<RangeKey, RangeValue>,
}

impl Ranges {
    pub fn take(ebpf: &mut Ebpf, name: &'static str) -> Result<Self, OpenError> {
        let Some(Map::LpmTrie(data)) = ebpf.take_map(name) else {
            return Err(unusable(name));
        };
        let fd = data.fd().as_fd().try_clone_to_owned();
        let table = fd.and_then(Table::of);
        let table = table.map_err(|error| of_io(&error, &format!("opening map {name}")))?;
        let map = Map::LpmTrie(data).try_into();
        let map = Trie(map.map_err(|_| unusable(name))?);
        Ok(Self { name, map, table })
    }

    /// Every entry, with its key in the form that we write: the kernel keeps bits that do not count.
    pub fn entries(&self) -> Result<Vec<(RangeKey, RangeValue)>, MapError> {
        let entries = batch::entries(&self.table).or_else(|error| {
            tracing::debug!(map = self.name, %error, "reading entry by entry");
            let entries: Result<_, _> = self.map.entries().collect();
            entries.map_err(|error| refused(self.name, "reading map", &error))
        });
        let canonical = |(key, value): (RangeKey, _)| (key.canonical(), value);
        Ok(entries?.into_iter().map(canonical).collect())
    }
}

/// The same, to write to.
pub struct Trie(LpmTrie<MapData, RangeData, RangeValue>);

impl Trie {
    pub fn insert(
        &mut self,
        key: &RangeKey,
        value: impl Borrow<RangeValue>,
        flags: u64,
    ) -> Result<(), KernelError> {
        self.0.insert(&to_kernel(key), value, flags)
    }

    pub fn remove(&mut self, key: &RangeKey) -> Result<(), KernelError> {
        self.0.remove(&to_kernel(key))
    }

    fn entries(&self) -> impl Iterator<Item = Result<(RangeKey, RangeValue), KernelError>> {
        let entries = self.0.iter();
        entries.map(|entry| entry.map(|(key, value)| (of_kernel(&key), value)))
    }
}

fn to_kernel(key: &RangeKey) -> Key<RangeData> {
    let RangeKey {
        prefix,
        service,
        address,
    } = *key;
    Key::new(prefix, RangeData { service, address })
}

fn of_kernel(key: &Key<RangeData>) -> RangeKey {
    let RangeData { service, address } = key.data();
    RangeKey {
        prefix: key.prefix_len(),
        service,
        address,
    }
}
