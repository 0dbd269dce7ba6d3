//! The maps that earlier runs pinned: whether they fit, and which of them are in force. What they
//! are is asked of what is held open, never of a path twice.

use std::{io, os::fd::AsFd};

use proxy_common::names::{EDGE_MAPS, MAPS, MapGroup, MapShape};

use super::error::of_io;
use super::{
    OpenError,
    pins::{self, PinDir, PinPath},
    sizes::Sizes,
    syscalls::{self, BpfKind},
};

/// What becomes of the Service maps of an earlier run.
#[derive(Debug, Clone, Copy)]
pub struct Chosen {
    /// They are used.
    pub adopted: bool,
    /// They do not fit: others are made beside them.
    pub rebuilt: bool,
}

/// Which directory to use for the Service maps: that of an earlier run, or one beside it. A run
/// that died while it rebuilt leaves two; what is in force was made equal to the other.
pub fn choose_services(pins: &PinDir, sizes: &Sizes<'_>) -> Result<Chosen, OpenError> {
    let maps = pins.service_maps();
    let chosen = |adopted, rebuilt| Ok(Chosen { adopted, rebuilt });
    if !maps.find()? {
        return chosen(false, false);
    }
    for left in [&maps.next, &maps.old] {
        pins::remove_tree(left)?;
    }
    let unfit = unfit(&maps.present, MapGroup::Services, sizes)?;
    if unfit.is_empty() {
        return chosen(true, false);
    }
    tracing::info!(
        differences = unfit.join("; "),
        "the pinned Service maps do not fit: rebuilding them beside the old ones"
    );
    chosen(false, true)
}

/// Flow maps of our own version that have another shape cannot come from a release; what sockets
/// remembered in them is lost, and said.
pub fn drop_unfit_flows(directory: &PinPath<'_>, sizes: &Sizes<'_>) -> Result<(), OpenError> {
    let unfit = unfit(directory, MapGroup::Flows, sizes)?;
    if !unfit.is_empty() {
        tracing::warn!(
            differences = unfit.join("; "),
            "the pinned flow maps do not fit: sockets opened before now see endpoint addresses"
        );
        pins::remove_tree(directory)?;
    }
    Ok(())
}

/// Which maps of connections are used, and where else open connections are remembered.
#[derive(Debug)]
pub struct ChosenConnections<'d> {
    /// Those that fit, as far as they are there.
    pub directory: PinPath<'d>,
    /// Others, which programs of an earlier run may use.
    pub earlier: Option<PinPath<'d>>,
}

/// Which directory to use for the maps of connections: that of an earlier run, or one beside it. A
/// run that died while it moved connections from one to the other leaves both, and programs of both.
pub fn choose_connections<'d>(
    pins: &'d PinDir,
    sizes: &Sizes<'_>,
) -> Result<ChosenConnections<'d>, OpenError> {
    let maps = pins.connection_maps();
    maps.find()?;
    pins::remove_tree(&maps.old)?;
    let unfit = |directory| unfit(directory, MapGroup::Connections, sizes);
    let differences = unfit(&maps.present)?;
    if differences.is_empty() {
        return Ok(ChosenConnections {
            earlier: maps.next.exists().then_some(maps.next),
            directory: maps.present,
        });
    }
    if !unfit(&maps.next)?.is_empty() {
        pins::remove_tree(&maps.next)?;
    }
    tracing::info!(
        differences = differences.join("; "),
        "the pinned maps of connections do not fit: moving the connections to others beside them"
    );
    Ok(ChosenConnections {
        directory: maps.next,
        earlier: Some(maps.present),
    })
}

impl ChosenConnections<'_> {
    /// Whether they take the place of those in force.
    pub fn are_beside(&self, pins: &PinDir) -> bool {
        self.directory.shown() != pins.connections().shown()
    }

    /// Puts them in force, once all programs use them.
    pub fn settle(&self, pins: &PinDir) -> Result<(), OpenError> {
        let maps = pins.connection_maps();
        if self.are_beside(pins) {
            Ok(maps.replace()?)
        } else {
            Ok(pins::remove_tree(&maps.next)?)
        }
    }
}

/// How the maps pinned in `directory` differ from what is wanted; not at all, if there is no such
/// directory.
fn unfit(
    directory: &PinPath<'_>,
    group: MapGroup,
    sizes: &Sizes<'_>,
) -> Result<Vec<String>, OpenError> {
    let mut found = Vec::new();
    if !directory.exists() {
        return Ok(found);
    }
    let all = MAPS.iter().chain(&EDGE_MAPS);
    for shape in all.filter(|shape| shape.group == group) {
        let pin = directory.join(shape.name);
        let failed = |error: &_| of_io(error, &format!("opening pinned map {}", pin.display()));
        match syscalls::open_pinned(pin.as_ref()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                found.push(format!("{} is missing", shape.name));
            }
            Err(error) => return Err(failed(&error)),
            Ok(map) => {
                let differs = differences(&map, shape, sizes);
                found.extend(differs.map_err(|error| failed(&error))?);
            }
        }
    }
    Ok(found)
}

/// How an open map differs from what is wanted. The kernel would hand out a map of another shape
/// without complaint, and every access would corrupt memory or fail.
pub fn differences(map: impl AsFd, shape: &MapShape, sizes: &Sizes<'_>) -> io::Result<Vec<String>> {
    let what = syscalls::identity(&map)?;
    if what.kind != BpfKind::Map {
        return Ok(vec![format!("{} is {what} instead of a map", shape.name)]);
    }
    let found = syscalls::map_shape(map)?;
    let pairs = [
        ("type", found.kind, shape.kind),
        ("key size", found.key_size, shape.key_size),
        ("value size", found.value_size, shape.value_size),
        ("entries", found.max_entries, sizes.of(shape)),
        ("flags", found.flags, shape.flags),
    ];
    let differing = pairs.iter().filter(|(_, found, wanted)| found != wanted);
    Ok(differing
        .map(|(what, found, wanted)| {
            format!("{} has {what} {found} instead of {wanted}", shape.name)
        })
        .collect())
}

/// Whether a Service map that is pinned in `directory` has more room than is wanted.
pub fn is_smaller(directory: &PinPath<'_>, sizes: &Sizes<'_>) -> bool {
    let mut services = MAPS
        .iter()
        .filter(|shape| shape.group == MapGroup::Services);
    services.any(|shape| {
        let there = syscalls::open_pinned(directory.join(shape.name).as_ref());
        let there = there.and_then(syscalls::map_shape);
        there.is_ok_and(|there| there.max_entries > sizes.of(shape))
    })
}
