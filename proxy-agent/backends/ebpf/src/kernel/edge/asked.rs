//! The flows of this host for who asks, agent or not: the maps that are pinned are all it needs.

use std::{collections::BTreeMap, io, path::Path};

use aya::maps::{Array, Map, MapData, MapError, PerCpuHashMap};
use proxy_backend::connections::{Census, Connections, Ended, Flow, Which};
use proxy_common::{
    names::TRACKED_MAP,
    track::{
        ConnectionKey, DIALLED, Settings, Table,
        reason::{Counted, Reason},
    },
};
use proxy_netlink::route::RouteSocket;

use super::{
    super::{
        OpenError,
        error::of_io,
        pins::{PinDir, PinPath},
        rights,
        sizes::flows_of,
        syscalls,
    },
    flows::since_boot,
    names::Names,
    open_table::{OpenTable, open},
};
use crate::connections::{
    Joined,
    end::{Ending, Entries, end},
};

/// A device that is gone, or had no room to be counted by itself.
const OTHER: &str = "other";

/// The maps of connections below a pin directory.
pub struct Asked {
    track: OpenTable,
    opening: OpenTable,
    settings: Option<Settings>,
    tracked: Option<Array<MapData, u64>>,
    reasons: Option<PerCpuHashMap<MapData, u32, Counted>>,
    names: Names,
}

impl Asked {
    /// The maps below `pin_dir`.
    pub fn open(pin_dir: &Path) -> Result<Self, OpenError> {
        rights::check()?;
        let Some(pins) = PinDir::look_into(pin_dir)? else {
            return Err(OpenError::Other(format!(
                "nothing of Culvert's is pinned at {}: no agent served with this --pin-dir since \
                 the host booted",
                pin_dir.display()
            )));
        };
        let connections = pins.connections();
        let data = |name| MapData::from_fd(open(&connections, name)?.0).ok();
        let settings = data("SETTINGS").and_then(|map| {
            let map: Array<MapData, Settings> = Map::Array(map).try_into().ok()?;
            map.get(&0, 0).ok()
        });
        let tracked = data("TRACKED").and_then(|map| Map::Array(map).try_into().ok());
        let reasons = data("REASONS").and_then(|map| Map::PerCpuHashMap(map).try_into().ok());
        Ok(Self {
            track: table(&connections, TRACKED_MAP)?,
            opening: table(&connections, "OPENING")?,
            settings,
            tracked,
            reasons,
            names: Names::of(&pins),
        })
    }

    fn join(&mut self, which: &Which) -> Result<Joined, OpenError> {
        self.names.refresh();
        let mut joined = Joined::new(which);
        let tables = [
            (Table::Opening, &mut self.opening.all),
            (Table::Track, &mut self.track.all),
        ];
        for (table, all) in tables {
            let read = all.each(|key, value| joined.add(table, key, value));
            read.map_err(|error| of_io(&error, "reading connections from outside"))?;
        }
        Ok(joined)
    }

    /// Writes how many flows there are by now: programs begin none where there is no room, and with no
    /// agent nobody else counts.
    fn recount(&mut self) -> io::Result<()> {
        let mut flows = 0;
        self.track
            .all
            .each(|key, _| flows += u64::from(key.role == DIALLED))?;
        match &mut self.tracked {
            Some(tracked) => tracked.set(0, flows, 0).map_err(refused),
            None => Ok(()),
        }
    }

    /// What programs counted, by the name of the device.
    fn packets(&self) -> Option<BTreeMap<(String, &'static str), u64>> {
        let reasons = self.reasons.as_ref()?;
        let links = RouteSocket::default().links().unwrap_or_default();
        let mut packets = BTreeMap::new();
        for entry in reasons {
            let (index, by_cpu) = entry.ok()?;
            let mut sum = Counted::default();
            by_cpu.iter().for_each(|one| sum.add(one));
            let link = links.iter().find(|link| link.index == index);
            let device = link.map_or(OTHER, |link| &*link.name);
            for reason in Reason::ALL {
                let count = sum.counts[reason as usize];
                if count > 0 {
                    *packets
                        .entry((device.to_owned(), reason.as_str()))
                        .or_default() += count;
                }
            }
        }
        Some(packets)
    }
}

impl Connections for Asked {
    fn list(&mut self, which: &Which) -> Result<Vec<Flow>, OpenError> {
        let joined = self.join(which)?;
        let names = &mut self.names;
        Ok(joined.list(which, now()?, |flow, number| names.name(flow, number)))
    }

    fn census(&mut self) -> Result<Census, OpenError> {
        let which = Which::default();
        let joined = self.join(&which)?;
        let names = &mut self.names;
        let flows = joined.list(&which, now()?, |flow, number| names.name(flow, number));
        let most = self.settings.map_or_else(
            || flows_of(u32::try_from(self.track.entries).unwrap_or(u32::MAX)),
            |settings| settings.most_flows,
        );
        Ok(Census {
            packets: self.packets(),
            ..joined.census(flows, [self.opening.entries, most.into()])
        })
    }

    fn end(&mut self, which: &Which) -> Result<Ended, OpenError> {
        let joined = self.join(which)?;
        let names = &mut self.names;
        let chosen = joined.chosen(which, |flow, number| names.name(flow, number));
        let chosen: Vec<Ending> = chosen
            .map(|(flow, ..)| (*flow, joined.source(flow)))
            .collect();
        let failed = |error: &_| of_io(error, "ending connections from outside");
        let ended = end(self, &chosen).map_err(|error| failed(&error));
        // Whatever went.
        let counted = self.recount().map_err(|error| failed(&error));
        let ended = ended?;
        counted.map(|()| ended)
    }
}

impl Entries for Asked {
    fn serial(&self, table: Table, key: &ConnectionKey) -> io::Result<Option<u32>> {
        let map = match table {
            Table::Track => &self.track.each,
            Table::Opening => &self.opening.each,
        };
        match map.get(key, 0) {
            Ok(value) => Ok(Some(value.serial)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    fn remove(&mut self, table: Table, key: &ConnectionKey) -> io::Result<()> {
        let map = match table {
            Table::Track => &mut self.track.each,
            Table::Opening => &mut self.opening.each,
        };
        match map.remove(key) {
            Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
            Err(error) => Err(refused(error)),
        }
    }

    fn settle(&mut self) {
        syscalls::wait_for_programs();
    }
}

/// What the kernel said.
fn refused(error: MapError) -> io::Error {
    match error {
        MapError::SyscallError(error) => error.io_error,
        error => io::Error::other(error),
    }
}

fn now() -> Result<u32, OpenError> {
    since_boot().map_err(|error| of_io(&error, "reading the clock"))
}

/// TRACK or OPENING, without which there is nothing to say.
fn table(connections: &PinPath<'_>, name: &str) -> Result<OpenTable, OpenError> {
    OpenTable::open(connections, name)?.ok_or_else(|| {
        OpenError::Other(format!(
            "{}: not there, or no map of this version: no connection from outside is translated by \
             what is pinned here; --tc is off, or no agent served with it and this --pin-dir since \
             the host booted",
            connections.join(name).display()
        ))
    })
}
