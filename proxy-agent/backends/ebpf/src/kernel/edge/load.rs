//! Loads the programs on devices over the Service maps that the socket programs have.

use std::{collections::BTreeMap, path::Path};

use aya::{Ebpf, EbpfLoader, VerifierLogLevel};
use proxy_common::names::{
    EDGE_MAPS, EDGE_PROGRAMS, MapGroup, MapShape, SHARED_MAPS, SWEEP_PROGRAM, TRACKED_MAP,
};

use super::{
    super::{
        EbpfOptions, OpenError,
        error::{of_io, of_kernel},
        fit::{self, ChosenConnections},
        held_maps::{self, HeldMap},
        links::{self, LoadFailure},
        load::Place,
        memory_limit::{self, REST_OF_DEVICES},
        pins::{PinDir, PinPath},
        sizes::{Sizes, flows_of},
        with_causes,
    },
    open_table::OpenTable,
};

/// The kernel programs, built from `proxy-ebpf`; empty when the agent was built without them.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/edge.o"));

/// Programs on devices, and their maps.
pub struct Loaded<'d> {
    /// The programs.
    pub ebpf: Ebpf,
    /// The maps of connections.
    pub maps: Vec<HeldMap>,
    /// Where those are pinned.
    pub chosen: ChosenConnections<'d>,
}

/// Loads the programs with the Service maps in `place`, and maps of connections of their own, which
/// are those of an earlier run where they fit.
pub fn load<'d>(
    pins: &'d PinDir,
    place: Place,
    options: &EbpfOptions,
) -> Result<Loaded<'d>, OpenError> {
    let sizes = with_room(Sizes::new(&options.map_sizes, None)?, pins)?;
    let chosen = fit::choose_connections(pins, &sizes)?;
    let connections = &chosen.directory;
    connections
        .make_directory()
        .map_err(|error| of_io(&error, &format!("creating {}", connections.display())))?;
    memory_limit::check(&EDGE_MAPS, &sizes, REST_OF_DEVICES, |shape| {
        !connections.join(shape.name).exists()
    })?;
    let services = place.of(pins);
    let ebpf = load_object(Some([&services, connections]), &sizes)?;
    let maps = held_maps::hold(&ebpf, &EDGE_MAPS)?;
    for held in &maps {
        let differences = fit::differences(&held.fd, held.shape, &sizes);
        let differences =
            differences.map_err(|error| of_io(&error, &format!("examining {}", held.object())))?;
        if !differences.is_empty() {
            return Err(OpenError::Other(format!(
                "{}: its pin was replaced while it was being opened; restart the agent",
                differences.join("; ")
            )));
        }
    }
    Ok(Loaded { ebpf, maps, chosen })
}

/// The sizes with which all connections that are open now have room in TRACK.
fn with_room<'a>(sizes: Sizes<'a>, pins: &PinDir) -> Result<Sizes<'a>, OpenError> {
    let shape = EDGE_MAPS.iter().find(|shape| shape.name == TRACKED_MAP);
    let wanted = sizes.of(shape.expect("a name of the table"));
    let Some(mut track) = OpenTable::open(&pins.connections(), TRACKED_MAP)? else {
        return Ok(sizes);
    };
    let there = u32::try_from(track.entries).unwrap_or(u32::MAX);
    let mut open = 0_u32;
    let counted = track.all.each(|_, _| open = open.saturating_add(1));
    counted.map_err(|error| of_io(&error, "counting connections from outside"))?;
    // Some that are just beginning are not counted.
    if wanted >= there || wanted >= open.saturating_add(open / 8) {
        return Ok(sizes);
    }
    tracing::info!(
        connections = open / 2,
        room = flows_of(there),
        wanted = flows_of(wanted),
        "map TRACK keeps its size, because more connections are open than it would have room for; \
         new ones have the room that is wanted"
    );
    Ok(sizes.keeping_track(there))
}

/// Loads the programs with maps of their own, pins nothing, and lets everything go again.
pub fn try_load(sizes: &BTreeMap<String, u32>) -> Result<(), OpenError> {
    let sizes = Sizes::new(sizes, None)?;
    memory_limit::check(&EDGE_MAPS, &sizes, REST_OF_DEVICES, |_| true)?;
    load_object(None, &sizes).map(drop)
}

fn load_object(
    directories: Option<[&PinPath<'_>; 2]>,
    sizes: &Sizes<'_>,
) -> Result<Ebpf, OpenError> {
    let mut loader = EbpfLoader::new();
    loader.verifier_log_level(VerifierLogLevel::STATS);
    if let Some([services, connections]) = directories {
        let own = EDGE_MAPS.iter().map(|shape| (connections, shape.name));
        let all = SHARED_MAPS.iter().map(|name| (services, *name)).chain(own);
        for (directory, name) in all {
            let pin = directory.join(name);
            loader.map_pin_path(name, AsRef::<Path>::as_ref(&pin).to_owned());
        }
    }
    for shape in EDGE_MAPS.iter().filter(|shape| shape.sizable) {
        loader.map_max_entries(shape.name, sizes.of(shape));
    }
    for shape in shared() {
        loader.map_max_entries(shape.name, sizes.of(shape));
    }
    let mut ebpf = loader.load(OBJECT).map_err(|error| {
        of_kernel(
            "loading the kernel object for devices",
            &error,
            &with_causes(&error),
        )
    })?;
    for name in EDGE_PROGRAMS.iter().chain([&SWEEP_PROGRAM]) {
        links::load(&mut ebpf, name).map_err(|LoadFailure { error, .. }| error)?;
    }
    Ok(ebpf)
}

/// The shapes of the maps that the socket programs have too.
fn shared() -> impl Iterator<Item = &'static MapShape> {
    let all = proxy_common::names::MAPS.iter();
    all.filter(|shape| shape.group == MapGroup::Services && SHARED_MAPS.contains(&shape.name))
}
