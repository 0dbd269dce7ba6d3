//! How many entries each map is made with: what was asked for, what the kernel needs besides, and
//! what cannot be changed while sockets or connections are in it.

use std::collections::BTreeMap;

use aya::util::nr_cpus;
use proxy_common::names::{MAPS, MapShape, PARKED, TRACKED_MAP};

use super::error::of_io;
use super::{
    OpenError,
    pins::{self, PinPath},
    syscalls,
};

/// The map whose places sockets hold by their cookies.
const PEERS: &str = "PEERS";

/// Entries by map.
#[derive(Debug)]
pub struct Sizes<'a> {
    asked: &'a BTreeMap<String, u32>,
    /// CPUs that the host can ever have.
    cpus: u32,
    /// Entries of PEERS.
    peers: u32,
    /// Entries of TRACK, if it keeps those that it has.
    track: Option<u32>,
}

impl<'a> Sizes<'a> {
    /// What is `asked` for by name, beside flow maps that may be pinned in `flows`.
    pub fn new(
        asked: &'a BTreeMap<String, u32>,
        flows: Option<&PinPath<'_>>,
    ) -> Result<Self, OpenError> {
        let cpus = nr_cpus().map_err(|(path, error)| of_io(&error, path))?;
        let shape = MAPS.iter().find(|shape| shape.name == PEERS);
        let shape = shape.expect("a name of the table");
        let wanted = self::asked(shape, asked).next_power_of_two();
        let pinned = flows.and_then(|flows| pinned(&flows.join(PEERS), shape));
        if let Some(pinned) = pinned
            && pinned != wanted
        {
            tracing::info!(
                places = pinned,
                wanted,
                "map PEERS keeps its size, because open sockets have their places in it; another \
                 size takes effect after `cleanup` or a reboot"
            );
        }
        Ok(Self {
            asked,
            cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
            peers: pinned.unwrap_or(wanted),
            track: None,
        })
    }

    /// The same, with as many entries of TRACK as are `there`.
    pub fn keeping_track(self, there: u32) -> Self {
        Self {
            track: Some(there),
            ..self
        }
    }

    /// Entries that the kernel makes `shape` with.
    pub fn of(&self, shape: &MapShape) -> u32 {
        let asked = asked(shape, self.asked);
        if shape.name == TRACKED_MAP {
            self.track.unwrap_or_else(|| entries_of(asked))
        } else if shape.gives_way() {
            asked.saturating_add(PARKED.saturating_mul(self.cpus))
        } else if shape.is_trie() {
            // Before Linux 6.13, one that is full takes no other value for a key that it has.
            asked.saturating_add(1)
        } else if shape.name == PEERS {
            self.peers
        } else {
            asked
        }
    }

    /// CPUs that the host can ever have.
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Entries of PEERS, a power of two.
    pub fn peers(&self) -> u32 {
        self.peers
    }
}

/// Entries of TRACK for so many flows, which take two each. One in eight comes on top, for those that
/// began while there was room and are answered when others have taken it: their clients are connected
/// by then, and nothing else would translate for them.
const fn entries_of(flows: u32) -> u32 {
    flows.saturating_mul(2).saturating_add(flows / 4)
}

/// Flows that TRACK is meant for with so many entries.
pub const fn flows_of(entries: u32) -> u32 {
    entries / 9 * 4
}

/// Entries of a map that can be used, with the configured sizes.
pub fn asked(shape: &MapShape, sizes: &BTreeMap<String, u32>) -> u32 {
    sizes.get(shape.name).copied().unwrap_or(shape.entries)
}

/// Entries of the map that is pinned there, if it is `shape` but for their number.
fn pinned(pin: &PinPath<'_>, shape: &MapShape) -> Option<u32> {
    let map = pins::open_readable(pin, shape)?;
    let found = syscalls::map_shape(map).ok()?;
    let entries = found.max_entries;
    (found.flags == shape.flags && entries.is_power_of_two()).then_some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(name: &str, asked: &BTreeMap<String, u32>) -> u32 {
        let shape = MAPS.iter().find(|shape| shape.name == name).unwrap();
        let sizes = Sizes::new(asked, None).unwrap();
        Sizes { cpus: 4, ..sizes }.of(shape)
    }

    #[test]
    fn a_map_that_gives_way_has_room_for_what_cpus_set_aside() {
        let mut asked = BTreeMap::new();
        assert_eq!(size("AFFINITY", &asked), 16_384 + 4 * 128);
        for (name, entries) in [("AFFINITY", 1), ("SLOTS", 7)] {
            asked.insert(name.to_owned(), entries);
        }
        assert_eq!(size("AFFINITY", &asked), 1 + 4 * 128);
        assert_eq!(size("SLOTS", &asked), 7);
        assert_eq!(size("RANGES", &asked), 65_536 + 1);
    }

    #[test]
    fn connections_that_began_have_room_beside_those_that_are_asked_for() {
        for (flows, entries) in [(1, 2), (8, 18), (1 << 17, (1 << 18) + (1 << 15))] {
            assert_eq!(entries_of(flows), entries);
            assert!(flows.abs_diff(flows_of(entries)) <= 1, "{flows}");
        }
        assert_eq!(entries_of(u32::MAX), u32::MAX);
    }

    #[test]
    fn places_are_a_power_of_two() {
        for (asked, expected) in [(1, 1), (20_000, 32_768), (65_536, 65_536)] {
            let asked = BTreeMap::from([(PEERS.to_owned(), asked)]);
            assert_eq!(size(PEERS, &asked), expected);
        }
    }
}
