//! Open connections brought from the maps of an earlier run to others, under traffic: a map cannot be
//! given another size.
//!
//! ```text
//! begin    no connection begins (LEAVING, in both); those that are just beginning are waited for;
//!          all entries are carried from one to the other
//!          the programs on devices are exchanged, hook by hook
//! finish   what the last packets through the programs of before changed is carried, and what they
//!          removed is
//! ```
//!
//! What begins meanwhile, for about a second and longer under a flood, is left to the layer beneath. An established connection
//! is in both maps before the first program uses the other ones; a closed one in none, or its rest
//! would take the packets of a connection from the same port that the layer beneath has got.

use std::{
    io, thread,
    time::{Duration, Instant},
};

use aya::maps::{Array, HashMap, Map, MapData, MapError};
use proxy_backend::milliseconds;
use proxy_common::{
    affinity::ClientKey,
    names::TRACKED_MAP,
    socket::TCP,
    track::{ConnectionKey, ConnectionValue, DIALLED, LEAVING, Settings},
};

use super::{
    super::{OpenError, earlier::carry_clients, error::of_io, pins::PinPath, syscalls},
    flows::since_boot,
    open_table::{OpenTable, open},
};
use crate::connections::carried::carried;

/// How long connections that are just beginning are waited for: until then a SYN was sent again.
const BEGINNING: Duration = Duration::from_secs(1);
/// How often they are looked for. The kernel tells nobody.
const LOOK: Duration = Duration::from_millis(20);
/// Where a key is already, it stays: `BPF_NOEXIST`.
const ADD: u64 = 1;
/// Where a key is gone, it stays so: `BPF_EXIST`.
const CHANGE: u64 = 2;

/// Connections that are being moved.
pub struct Moved {
    from: Tables,
    to: Tables,
    began: Instant,
    /// No connection is open that `from` does not know.
    are_all: bool,
    /// Entries that the other maps have no room for.
    lost: u64,
}

/// Maps of connections.
struct Tables {
    track: OpenTable,
    opening: OpenTable,
    settings: Array<MapData, Settings>,
}

impl Tables {
    /// The maps that are pinned in `directory`; `None` if some are missing, or of another kind.
    fn open(directory: &PinPath<'_>) -> Result<Option<Self>, OpenError> {
        let settings = open(directory, "SETTINGS")
            .and_then(|(map, _)| MapData::from_fd(map).ok())
            .and_then(|map| Map::Array(map).try_into().ok());
        let track = OpenTable::open(directory, TRACKED_MAP)?;
        let opening = OpenTable::open(directory, "OPENING")?;
        Ok(match (track, opening, settings) {
            (Some(track), Some(opening), Some(settings)) => Some(Self {
                track,
                opening,
                settings,
            }),
            _ => None,
        })
    }
}

impl Moved {
    /// Has no connection begin any more, waits for those that are just beginning, and brings all to the
    /// maps in `to`; with `are_all`, those are left with nothing else. `None` if there is nothing to
    /// move: `from` cannot be read.
    pub fn begin(
        from: &PinPath<'_>,
        to: &PinPath<'_>,
        are_all: bool,
    ) -> Result<Option<Self>, OpenError> {
        let began = Instant::now();
        let (Some(earlier), Some(later)) = (Tables::open(from)?, Tables::open(to)?) else {
            tracing::warn!(
                maps = %from.display(),
                "the pinned maps of connections cannot be read: connections from outside that were \
                 open before now break"
            );
            return Ok(None);
        };
        let mut moved = Self {
            from: earlier,
            to: later,
            began,
            are_all,
            lost: 0,
        };
        moved.close().map_err(|error| failed(&error))?;
        moved.wait().map_err(|error| failed(&error))?;
        moved.bring().map_err(|error| failed(&error))?;
        // Of clients that keep their endpoints: no connection breaks without.
        if let Err(error) = carry_clients::<ClientKey>(from, to, "CLIENTS") {
            tracing::warn!(%error, "clients may change their endpoint");
        }
        Ok(Some(moved))
    }

    /// Sets LEAVING here and there, and keeps the seed.
    fn close(&mut self) -> io::Result<()> {
        let mut settings = self.from.settings.get(&0, 0).map_err(refused)?;
        settings.flags |= LEAVING;
        for tables in [&mut self.from, &mut self.to] {
            tables.settings.set(0, settings, 0).map_err(refused)?;
        }
        syscalls::wait_for_programs();
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        let end = Instant::now() + BEGINNING;
        while self.is_beginning()? && Instant::now() < end {
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Whether a client that dialled is to hear from its endpoint, or the other way round.
    fn is_beginning(&mut self) -> io::Result<bool> {
        let now = since_boot()?;
        let mut any = false;
        self.from.opening.all.each(|key, value| {
            any |= key.protocol == TCP
                && key.role == DIALLED
                && value.is_translated()
                && now.saturating_sub(value.last) <= 1;
        })?;
        Ok(any)
    }

    /// Makes the other maps know what these do. Returns the entries of answered flows.
    fn bring(&mut self) -> io::Result<u64> {
        self.carry()?;
        self.forget()
    }

    /// Brings all entries to the other maps.
    fn carry(&mut self) -> io::Result<()> {
        let Self { from, to, .. } = self;
        // This one first: a flow that is answered meanwhile is in TRACK before it leaves OPENING. Of what
        // is not answered, the kernel makes room for what is used.
        from.opening.carry(&mut to.opening, |_| {})?;
        let opening = &mut to.opening;
        self.lost = from.track.carry(&mut to.track, |key| {
            // As where a program finds that a flow is answered.
            opening.each.remove(key).ok();
        })?;
        Ok(())
    }

    /// Removes what was carried and is in no table any more that it came from. Returns what is left.
    fn forget(&mut self) -> io::Result<u64> {
        let Self {
            from, to, are_all, ..
        } = self;
        let (mut left, mut gone) = (0, Vec::new());
        to.track.all.try_each(|key, value| {
            let is_there = |table: &OpenTable| -> io::Result<bool> {
                let found = there(&table.each, key)?;
                Ok(found.is_some_and(|found| found.serial == value.serial))
            };
            if !*are_all || is_there(&from.opening)? || is_there(&from.track)? {
                left += u64::from(value.is_translated());
            } else {
                gone.push(*key);
            }
            Ok(())
        })?;
        for key in gone {
            // A program may have been faster.
            to.track.each.remove(&key).ok();
        }
        Ok(left)
    }

    /// Brings what is left, once no program uses the earlier maps.
    pub fn finish(mut self) -> Result<(), OpenError> {
        syscalls::wait_for_programs();
        let entries = self.bring().map_err(|error| failed(&error))?;
        if self.lost > 0 {
            tracing::warn!(
                entries = self.lost,
                "map TRACK has no room for all open connections from outside: some break"
            );
        }
        tracing::info!(
            connections = entries / 2,
            duration_ms = milliseconds(self.began.elapsed()),
            "connections from outside moved to maps of another size"
        );
        Ok(())
    }
}

impl OpenTable {
    /// Brings all entries to `to`, and tells of those that were not there. Returns how many there was
    /// no room for.
    fn carry(&mut self, to: &mut Self, mut added: impl FnMut(&ConnectionKey)) -> io::Result<u64> {
        let mut full = 0;
        let to = &mut to.each;
        self.all.try_each_closed(|key, value, is_closed| {
            let here = there(to, key)?;
            if is_closed && here.is_none() {
                return Ok(());
            }
            let Some(value) = carried(here.as_ref(), value) else {
                return Ok(());
            };
            let flags = if here.is_some() { CHANGE } else { ADD };
            match to.insert(key, value, flags).map_err(refused) {
                Ok(()) if here.is_none() => added(key),
                Ok(()) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::E2BIG) => full += 1,
                    // A program was faster.
                    Some(libc::EEXIST | libc::ENOENT) => {}
                    _ => return Err(error),
                },
            }
            Ok(())
        })?;
        Ok(full)
    }
}

fn there(
    map: &HashMap<MapData, ConnectionKey, ConnectionValue>,
    key: &ConnectionKey,
) -> io::Result<Option<ConnectionValue>> {
    match map.get(key, 0) {
        Ok(value) => Ok(Some(value)),
        Err(MapError::KeyNotFound) => Ok(None),
        Err(error) => Err(refused(error)),
    }
}

fn refused(error: MapError) -> io::Error {
    match error {
        MapError::SyscallError(error) => error.io_error,
        MapError::KeyNotFound => io::Error::from_raw_os_error(libc::ENOENT),
        error => io::Error::other(error),
    }
}

fn failed(error: &io::Error) -> OpenError {
    of_io(error, "moving connections from outside to other maps")
}
