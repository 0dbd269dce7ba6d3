//! What the Service maps of an earlier run hold, whose place others take.

use std::{io, os::fd::OwnedFd};

use aya::maps::{HashMap, Map, MapData, MapError};
use bytemuck::Pod;
use proxy_common::{
    affinity::AffinityValue,
    names::{EDGE_MAPS, MAPS},
};

use super::{
    OpenError,
    error::of_io,
    maps::batch,
    pins::{self, PinPath},
    syscalls::Table,
};
use crate::{
    adopt::{Adopted, adopt},
    entry::Entries,
    programmed::Programmed,
};

/// Where a key is already, it stays: `BPF_NOEXIST`.
const ADD: u64 = 1;

/// What the maps that are pinned in `directory` hold. One that is missing, or another kind of map,
/// holds nothing.
pub fn programmed(directory: &PinPath<'_>) -> Result<Programmed, OpenError> {
    let entries = Entries {
        services: entries(directory, "SERVICES")?,
        slots: entries(directory, "SLOTS")?,
        members: entries(directory, "MEMBERS")?,
        sets: entries(directory, "SETS")?,
        frontends: entries(directory, "FRONTENDS")?,
        node_addresses: entries(directory, "NODE_ADDRS")?,
        // Who may come is written anew: it has no numbers of its own.
        ranges: Vec::new(),
    };
    let Adopted { programmed, .. } = adopt(&entries);
    Ok(programmed)
}

fn entries<K: Pod, V: Pod>(
    directory: &PinPath<'_>,
    name: &'static str,
) -> Result<Vec<(K, V)>, OpenError> {
    let Some(map) = open(directory, name) else {
        return Ok(Vec::new());
    };
    let entries = Table::of(map).and_then(|table| batch::entries(&table));
    entries.map_err(|error| {
        let what = format!("reading pinned map {}", directory.join(name).display());
        of_io(&error, &what)
    })
}

/// Brings the endpoints that clients used last to the map of the same name in `to`, whose numbers mean
/// the same. What is there already stays.
pub fn carry_clients<K: Pod + aya::Pod>(
    from: &PinPath<'_>,
    to: &PinPath<'_>,
    name: &'static str,
) -> io::Result<()> {
    let [Some(from), Some(to)] = [from, to].map(|directory| open(directory, name)) else {
        return Err(io::Error::other(format!("no map {name} of this version")));
    };
    let clients = batch::entries(&Table::<K, AffinityValue>::of(from)?)?;
    let to = MapData::from_fd(to).map_err(io::Error::other)?;
    let to: Result<HashMap<MapData, K, AffinityValue>, _> = Map::LruHashMap(to).try_into();
    let mut to = to.map_err(io::Error::other)?;
    for (key, value) in clients {
        match to.insert(key, value, ADD) {
            Err(MapError::SyscallError(error))
                if error.io_error.raw_os_error() == Some(libc::EEXIST) => {}
            added => added.map_err(io::Error::other)?,
        }
    }
    Ok(())
}

fn open(directory: &PinPath<'_>, name: &'static str) -> Option<OwnedFd> {
    let mut all = MAPS.iter().chain(&EDGE_MAPS);
    let shape = all.find(|shape| shape.name == name);
    pins::open_readable(&directory.join(name), shape.expect("a name of the tables"))
}
