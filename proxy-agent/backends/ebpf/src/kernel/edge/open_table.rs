//! TRACK and OPENING by their pins: to be read as a whole, and by the entry.

use std::{io, os::fd::OwnedFd};

use aya::maps::{HashMap, Map, MapData};
use proxy_common::{
    names::{EDGE_MAPS, MapShape},
    track::{ConnectionKey, ConnectionValue},
};

use super::{
    super::{
        OpenError,
        error::of_io,
        pins::{self, PinPath},
        syscalls,
    },
    flows::Flows,
};

/// TRACK or OPENING.
pub struct OpenTable {
    /// All of it.
    pub all: Flows,
    /// By the entry.
    pub each: HashMap<MapData, ConnectionKey, ConnectionValue>,
    /// Entries that there is room for.
    pub entries: u64,
}

impl OpenTable {
    /// The map that is pinned in `directory`; `None` without one of this version.
    pub fn open(directory: &PinPath<'_>, name: &str) -> Result<Option<Self>, OpenError> {
        let opened = open(directory, name).map(|(map, shape)| Self::of(map, shape));
        opened
            .transpose()
            .map_err(|error| of_io(&error, &format!("opening map {name}")))
    }

    fn of(map: OwnedFd, shape: &MapShape) -> io::Result<Self> {
        let entries = syscalls::map_shape(&map)?.max_entries.into();
        let all = Flows::in_map(map.try_clone()?)?;
        let data = MapData::from_fd(map).map_err(io::Error::other)?;
        let map = if shape.gives_way() {
            Map::LruHashMap(data)
        } else {
            Map::HashMap(data)
        };
        let each = map.try_into().map_err(io::Error::other)?;
        Ok(Self { all, each, entries })
    }
}

/// A map of connections that is pinned in `directory`, and what it is.
pub fn open(directory: &PinPath<'_>, name: &str) -> Option<(OwnedFd, &'static MapShape)> {
    let shape = EDGE_MAPS.iter().find(|shape| shape.name == name)?;
    let map = pins::open_readable(&directory.join(name), shape)?;
    Some((map, shape))
}
