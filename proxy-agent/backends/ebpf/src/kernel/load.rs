//! Loads the kernel object into the kernel, reusing pinned maps that fit and only those.

use std::{collections::BTreeMap, path::Path};

use aya::{Ebpf, EbpfLoader, VerifierLogLevel};
use proxy_common::{
    caller,
    names::{
        HAS_SET_RETVAL, HOST_NETNS, MAPS, MapGroup, MapShape, PEERS_MASK, SOCKET_PROGRAMS,
        TASK_FLAGS,
    },
};

use super::error::{of_io, of_kernel};
use super::{
    OpenError, fit, held_maps, links,
    links::LoadFailure,
    memory_limit::{self, REST_OF_SOCKETS},
    netns,
    pins::{PinDir, PinPath},
    sizes::Sizes,
    task_flags, with_causes,
};

/// The kernel programs, built from `proxy-ebpf`; empty when the agent was built without them.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/socket.o"));

/// `aya_log_common::Level::Debug`, and no level at all.
const LOG_DEBUG: u8 = 4;
const LOG_OFF: u8 = 0;

/// Size of the log ring when nothing is logged: the smallest the kernel makes.
const SMALLEST_RING: u32 = 4096;

/// A loaded object.
#[derive(Debug)]
pub struct Loaded {
    /// Programs and maps.
    pub ebpf: Ebpf,
    /// Where the Service maps are pinned.
    pub place: Place,
    /// The Service maps are those of an earlier run.
    pub adopted: bool,
    /// The Service maps of an earlier run do not fit and these take their place.
    pub rebuilt: bool,
    /// Some of these are to hold less than those: whoever set the sizes wants that.
    pub smaller: bool,
    /// What a refused connect gives on this kernel.
    pub refusal: &'static str,
}

/// Where Service maps are pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Where those in force are.
    InForce,
    /// Beside those of an earlier run, whose place they are to take.
    Beside,
}

impl Place {
    /// The directory.
    pub fn of(self, pins: &PinDir) -> PinPath<'_> {
        match self {
            Self::InForce => pins.services(),
            Self::Beside => pins.service_maps().next,
        }
    }
}

impl Loaded {
    /// Where the Service maps are pinned.
    pub fn services<'d>(&self, pins: &'d PinDir) -> PinPath<'d> {
        self.place.of(pins)
    }
}

/// Loads the programs with maps of the given sizes (entries by map name).
pub fn load(
    pins: &PinDir,
    sizes: &BTreeMap<String, u32>,
    kernel_log: bool,
) -> Result<Loaded, OpenError> {
    check_object()?;
    let sizes = &Sizes::new(sizes, Some(&pins.flows()))?;
    let fit::Chosen { adopted, rebuilt } = fit::choose_services(pins, sizes)?;
    let place = if rebuilt {
        Place::Beside
    } else {
        Place::InForce
    };
    let services = place.of(pins);
    let smaller = rebuilt && fit::is_smaller(&pins.services(), sizes);
    fit::drop_unfit_flows(&pins.flows(), sizes)?;
    for directory in [&services, &pins.flows()] {
        directory
            .make_directory()
            .map_err(|error| of_io(&error, &format!("creating {}", directory.display())))?;
    }
    raise_memlock_limit();

    let directories = [&services, &pins.flows()];
    memory_limit::check(&MAPS, sizes, REST_OF_SOCKETS, |shape| {
        !pin_of(shape, directories).exists()
    })?;
    let (ebpf, refusal) = load_best(Some(directories), sizes, kernel_log)?;
    Ok(Loaded {
        ebpf,
        place,
        adopted,
        rebuilt,
        smaller,
        refusal,
    })
}

/// Loads the programs with maps of their own, pins nothing, and lets everything go again. Returns
/// what a refused connect gives.
pub fn try_load(sizes: &BTreeMap<String, u32>) -> Result<&'static str, OpenError> {
    check_object()?;
    raise_memlock_limit();
    let sizes = Sizes::new(sizes, None)?;
    memory_limit::check(&MAPS, &sizes, REST_OF_SOCKETS, |_| true)?;
    load_best(None, &sizes, false).map(|(_, refusal)| refusal)
}

fn check_object() -> Result<(), OpenError> {
    if OBJECT.is_empty() {
        return Err(OpenError::Other(
            "this proxy-agent was built without the kernel programs; build it without \
             CULVERT_SKIP_EBPF, after `cargo xtask setup`"
                .into(),
        ));
    }
    Ok(())
}

// `enum bpf_func_id`.
const GET_CURRENT_TASK: u32 = 35;
const PROBE_READ_KERNEL: u32 = 113;
const SET_RETVAL: u32 = 187;

/// What a kernel lets programs do about a socket that leads nowhere.
#[derive(Debug, Clone, Copy)]
struct Variant {
    has_set_retval: u8,
    task_flags: u32,
}

/// Which helpers may be called can only be tried: distributions backport, and a kernel that is
/// locked down lets none of its memory be read. Whatever else stops an attempt says nothing about
/// that.
fn load_best(
    directories: Option<[&PinPath<'_>; 2]>,
    sizes: &Sizes<'_>,
    kernel_log: bool,
) -> Result<(Ebpf, &'static str), OpenError> {
    let attempt = |has_set_retval, task_flags| {
        let variant = Variant {
            has_set_retval,
            task_flags,
        };
        load_object(directories, sizes, kernel_log, variant)
    };
    match attempt(1, caller::NOT_ASKED) {
        Ok(ebpf) => return Ok((ebpf, "ECONNREFUSED")),
        Err(failure) if failure.refuses_helper(&[SET_RETVAL]) => {
            tracing::debug!(error = %failure.error, "loading again without bpf_set_retval");
        }
        Err(failure) => return Err(failure.error),
    }
    if let Some(at) = task_flags::offset() {
        match attempt(0, at) {
            Ok(ebpf) => return Ok((ebpf, "EPERM")),
            Err(failure) if failure.refuses_helper(&[GET_CURRENT_TASK, PROBE_READ_KERNEL]) => {
                tracing::debug!(error = %failure.error, "loading again without bpf_probe_read_kernel");
            }
            Err(failure) => return Err(failure.error),
        }
    }
    let ebpf = attempt(0, caller::BY_NAME).map_err(|failure| failure.error)?;
    Ok((ebpf, "EPERM"))
}

/// Loads the object with the Service maps and the flow maps of `directories`, or with new ones.
fn load_object(
    directories: Option<[&PinPath<'_>; 2]>,
    sizes: &Sizes<'_>,
    kernel_log: bool,
    variant: Variant,
) -> Result<Ebpf, LoadFailure> {
    let level = if kernel_log { LOG_DEBUG } else { LOG_OFF };
    let host_netns = netns::host();
    let peers_mask = sizes.peers() - 1;
    let mut loader = EbpfLoader::new();
    // The reason of a refusal, without the way to it: for that the verifier is run again with ever
    // more room, and it names each helper that is called, refused or not.
    loader.verifier_log_level(VerifierLogLevel::STATS);
    loader
        .override_global(HAS_SET_RETVAL, &variant.has_set_retval, true)
        .override_global(PEERS_MASK, &peers_mask, true)
        .override_global(TASK_FLAGS, &variant.task_flags, true)
        .override_global(HOST_NETNS, &host_netns, true)
        .override_global(aya_log::LEVEL, &level, true);
    if !kernel_log {
        loader.map_max_entries("AYA_LOGS", SMALLEST_RING);
    }
    for shape in &MAPS {
        if let Some(directories) = directories {
            let pin = pin_of(shape, directories);
            loader.map_pin_path(shape.name, AsRef::<Path>::as_ref(&pin).to_owned());
        }
        if shape.sizable {
            loader.map_max_entries(shape.name, sizes.of(shape));
        }
    }
    let mut ebpf = loader
        .load(OBJECT)
        .map_err(|error| of_kernel("loading the kernel object", &error, &with_causes(&error)))?;
    // Of what is held now: what the pins led to before says nothing about it, and every access to a
    // map of another shape would corrupt memory or fail.
    for held in held_maps::hold(&ebpf, &MAPS)? {
        let differences = fit::differences(&held.fd, held.shape, sizes);
        let differences =
            differences.map_err(|error| of_io(&error, &format!("examining {}", held.object())))?;
        if !differences.is_empty() {
            let differences = differences.join("; ");
            return Err(OpenError::Other(format!(
                "{differences}: its pin was replaced while it was being opened; restart the agent"
            ))
            .into());
        }
    }
    for name in SOCKET_PROGRAMS {
        links::load(&mut ebpf, name)?;
    }
    Ok(ebpf)
}

/// Where `shape` is pinned: in the directory of the Service maps, or in that of the flow maps.
fn pin_of<'d>(shape: &MapShape, [services, flows]: [&PinPath<'d>; 2]) -> PinPath<'d> {
    let directory = match shape.group {
        MapGroup::Services => services,
        MapGroup::Flows | MapGroup::Connections => flows,
    };
    directory.join(shape.name)
}

/// Before Linux 5.11 maps count against `RLIMIT_MEMLOCK`, by default 64 KiB. Where raising it fails
/// it is either not needed or loading says what is missing.
fn raise_memlock_limit() {
    use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
    if let Err(errno) = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY) {
        tracing::debug!(%errno, "could not raise the locked memory limit");
    }
}
