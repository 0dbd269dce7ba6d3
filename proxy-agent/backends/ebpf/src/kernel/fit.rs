//! The maps that earlier runs pinned: whether they fit, and which of them are in force. What they
//! are is asked of what is held open, never of a path twice.

use std::{collections::BTreeSet, fs, io, os::fd::AsFd};

use aya::maps::{HashMap, Map, MapData, MapError};
use proxy_common::{
    names::{EDGE_MAPS, MAPS, MapGroup, MapShape},
    service::{ServiceKey, ServiceValue},
};
use proxy_model::ServicePortKey;

use super::error::{of_io, of_kernel};
use super::{
    OpenError,
    pins::{self, PinDir, PinPath},
    sizes::Sizes,
    syscalls::{self, BpfKind},
    with_causes,
};
use crate::encode;

/// What becomes of the Service maps of an earlier run.
#[derive(Debug, Clone, Copy)]
pub struct Chosen {
    /// They are used.
    pub adopted: bool,
    /// They do not fit: others are made beside them.
    pub rebuilt: bool,
}

/// Which directory to use for the Service maps: that of an earlier run, or one beside it. A run
/// that died while it rebuilt leaves two, and the first of these that exists is in force, or was
/// made equal to what is.
pub fn choose_services(pins: &PinDir, sizes: &Sizes<'_>) -> Result<Chosen, OpenError> {
    let (present, next, old) = (pins.services(), pins.services_next(), pins.services_old());
    let chosen = |adopted, rebuilt| Ok(Chosen { adopted, rebuilt });
    if !present.exists() {
        if next.exists() {
            rename(&next, &present)?;
        } else if old.exists() {
            rename(&old, &present)?;
        } else {
            return chosen(false, false);
        }
    }
    for left in [&next, &old] {
        pins::remove_tree(left)?;
    }
    let unfit = unfit(&present, MapGroup::Services, sizes)?;
    if unfit.is_empty() {
        return chosen(true, false);
    }
    tracing::info!(
        differences = unfit.join("; "),
        "the pinned Service maps do not fit: rebuilding them beside the old ones"
    );
    chosen(false, true)
}

/// Puts rebuilt Service maps in the place of the old ones, once programs use them. Renames come
/// first: a run that dies in between leaves no half-emptied directory under the name in force.
pub fn settle_rebuilt(pins: &PinDir) -> Result<(), OpenError> {
    rename(&pins.services(), &pins.services_old())?;
    rename(&pins.services_next(), &pins.services())?;
    Ok(pins::remove_tree(&pins.services_old())?)
}

/// The Service ports that the maps of the run before serve.
pub fn served_before(pins: &PinDir) -> Result<BTreeSet<ServicePortKey>, OpenError> {
    let pin = pins.services().join("SERVICES");
    let failed = |error: &MapError| {
        of_kernel(
            &format!("reading pinned map {}", pin.display()),
            error,
            &with_causes(error),
        )
    };
    let shape = MAPS
        .iter()
        .find(|shape| shape.name == "SERVICES")
        .expect("in the table");
    // Without it, or with another, nothing says what was served.
    let Some(map) = pins::open_readable(&pin, shape) else {
        return Ok(BTreeSet::new());
    };
    let map = MapData::from_fd(map).map_err(|error| failed(&error))?;
    let map: HashMap<_, ServiceKey, ServiceValue> = Map::HashMap(map)
        .try_into()
        .map_err(|error: MapError| failed(&error))?;
    let mut served = BTreeSet::new();
    for entry in &map {
        let (key, value) = entry.map_err(|error| failed(&error))?;
        served.extend(encode::service_key(key, &value));
    }
    Ok(served)
}

fn rename(from: &PinPath<'_>, to: &PinPath<'_>) -> Result<(), OpenError> {
    fs::rename(from, to).map_err(|error| {
        of_io(
            &error,
            &format!("renaming {} to {}", from.display(), to.display()),
        )
    })
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

/// The same of maps of connections: flows that are open are left to the layer beneath then.
pub fn drop_unfit_connections(directory: &PinPath<'_>, sizes: &Sizes<'_>) -> Result<(), OpenError> {
    let unfit = unfit(directory, MapGroup::Connections, sizes)?;
    if !unfit.is_empty() {
        tracing::warn!(
            differences = unfit.join("; "),
            "the pinned maps of connections do not fit: connections from outside that were open \
             before now break"
        );
        pins::remove_tree(directory)?;
    }
    Ok(())
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
