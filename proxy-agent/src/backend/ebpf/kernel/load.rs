//! Loads the kernel object into the kernel, reusing pinned maps that fit and only those.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use aya::{
    Ebpf, EbpfLoader, VerifierLogLevel,
    maps::{HashMap, Map, MapData, MapError, MapInfo},
};
use proxy_common::{
    caller,
    names::{HAS_SET_RETVAL, HOST_NETNS, MAPS, MapGroup, MapShape, SOCKET_PROGRAMS, TASK_FLAGS},
    service::{ServiceKey, ServiceValue},
};
use proxy_model::ServicePortKey;

use super::{
    OpenError, links, links::LoadFailure, netns, pins, pins::PinDir, syscalls, task_flags,
    with_causes,
};
use crate::backend::ebpf::encode;

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
    pub services: PathBuf,
    /// The Service maps are those of an earlier run.
    pub adopted: bool,
    /// The Service maps of an earlier run do not fit and these take their place.
    pub rebuilt: bool,
    /// Some of these are to hold less than those: whoever set the sizes wants that.
    pub smaller: bool,
    /// What a refused connect gives on this kernel.
    pub refusal: &'static str,
}

/// Loads the programs with maps of the given sizes (entries by map name).
pub fn load(
    pins: &PinDir,
    sizes: &BTreeMap<String, u32>,
    kernel_log: bool,
) -> Result<Loaded, OpenError> {
    check_object()?;
    let (services, adopted, rebuilt) = choose_services(pins, sizes)?;
    let smaller = rebuilt && is_smaller(&pins.services(), sizes);
    drop_unfit_flows(&pins.flows(), sizes)?;
    for directory in [&services, &pins.flows()] {
        fs::create_dir_all(directory)
            .map_err(|error| OpenError::io(&error, &format!("creating {}", directory.display())))?;
    }
    raise_memlock_limit();

    let directories = [&*services, &*pins.flows()];
    let (ebpf, refusal) = load_best(Some(directories), sizes, kernel_log)?;
    Ok(Loaded {
        ebpf,
        services,
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
    load_best(None, sizes, false).map(|(_, refusal)| refusal)
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
    directories: Option<[&Path; 2]>,
    sizes: &BTreeMap<String, u32>,
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
    directories: Option<[&Path; 2]>,
    sizes: &BTreeMap<String, u32>,
    kernel_log: bool,
    variant: Variant,
) -> Result<Ebpf, LoadFailure> {
    let level = if kernel_log { LOG_DEBUG } else { LOG_OFF };
    let host_netns = netns::host();
    let mut loader = EbpfLoader::new();
    // The reason of a refusal, without the way to it: for that the verifier is run again with ever
    // more room, and it names each helper that is called, refused or not.
    loader.verifier_log_level(VerifierLogLevel::STATS);
    loader
        .override_global(HAS_SET_RETVAL, &variant.has_set_retval, true)
        .override_global(TASK_FLAGS, &variant.task_flags, true)
        .override_global(HOST_NETNS, &host_netns, true)
        .override_global(aya_log::LEVEL, &level, true);
    if !kernel_log {
        loader.map_max_entries("AYA_LOGS", SMALLEST_RING);
    }
    for shape in &MAPS {
        if let Some([services, flows]) = directories {
            let directory = match shape.group {
                MapGroup::Services => services,
                MapGroup::Flows => flows,
            };
            loader.map_pin_path(shape.name, directory.join(shape.name));
        }
        if shape.sizable {
            loader.map_max_entries(shape.name, entries(shape, sizes));
        }
    }
    let mut ebpf = loader.load(OBJECT).map_err(|error| {
        OpenError::kernel("loading the kernel object", &error, &with_causes(&error))
    })?;
    for name in SOCKET_PROGRAMS {
        links::load(&mut ebpf, name)?;
    }
    Ok(ebpf)
}

/// Entries that a map shall have.
pub fn entries(shape: &MapShape, sizes: &BTreeMap<String, u32>) -> u32 {
    sizes.get(shape.name).copied().unwrap_or(shape.entries)
}

/// Which directory to use for the Service maps: that of an earlier run, or one beside it. A run
/// that died while it rebuilt leaves two, and the first of these that exists is in force, or was
/// made equal to what is.
fn choose_services(
    pins: &PinDir,
    sizes: &BTreeMap<String, u32>,
) -> Result<(PathBuf, bool, bool), OpenError> {
    let (present, next, old) = (pins.services(), pins.services_next(), pins.services_old());
    if !present.exists() {
        if next.exists() {
            rename(&next, &present)?;
        } else if old.exists() {
            rename(&old, &present)?;
        } else {
            return Ok((present, false, false));
        }
    }
    for left in [&next, &old] {
        pins::remove_tree(left).map_err(OpenError::Other)?;
    }
    let unfit = unfit(&present, MapGroup::Services, sizes)?;
    if unfit.is_empty() {
        return Ok((present, true, false));
    }
    tracing::info!(
        differences = unfit.join("; "),
        "the pinned Service maps do not fit: rebuilding them beside the old ones"
    );
    Ok((next, false, true))
}

/// Puts rebuilt Service maps in the place of the old ones, once programs use them. Renames come
/// first: a run that dies in between leaves no half-emptied directory under the name in force.
pub fn settle_rebuilt(pins: &PinDir) -> Result<(), OpenError> {
    rename(&pins.services(), &pins.services_old())?;
    rename(&pins.services_next(), &pins.services())?;
    pins::remove_tree(&pins.services_old()).map_err(OpenError::Other)
}

/// The Service ports that the maps of the run before serve.
pub fn served_before(pins: &PinDir) -> Result<BTreeSet<ServicePortKey>, OpenError> {
    let pin = pins.services().join("SERVICES");
    let failed = |error: &MapError| {
        OpenError::kernel(
            &format!("reading pinned map {}", pin.display()),
            error,
            &with_causes(error),
        )
    };
    let shape = MAPS
        .iter()
        .find(|shape| shape.name == "SERVICES")
        .expect("in the table");
    // Without it nothing says what was served.
    let Ok(info) = MapInfo::from_pin(&pin) else {
        return Ok(BTreeSet::new());
    };
    if (info.key_size(), info.value_size()) != (shape.key_size, shape.value_size) {
        return Ok(BTreeSet::new());
    }
    let map = MapData::from_pin(&pin).map_err(|error| failed(&error))?;
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

fn rename(from: &Path, to: &Path) -> Result<(), OpenError> {
    fs::rename(from, to).map_err(|error| {
        OpenError::io(
            &error,
            &format!("renaming {} to {}", from.display(), to.display()),
        )
    })
}

/// Flow maps of our own version that have another shape cannot come from a release; what sockets
/// remembered in them is lost, and said.
fn drop_unfit_flows(directory: &Path, sizes: &BTreeMap<String, u32>) -> Result<(), OpenError> {
    let unfit = unfit(directory, MapGroup::Flows, sizes)?;
    if !unfit.is_empty() {
        tracing::warn!(
            differences = unfit.join("; "),
            "the pinned flow maps do not fit: sockets opened before now see endpoint addresses"
        );
        pins::remove_tree(directory).map_err(OpenError::Other)?;
    }
    Ok(())
}

/// How the maps pinned in `directory` differ from what is wanted; not at all, if there is no such
/// directory. The kernel would hand out a map
/// of another shape without complaint, and every access would corrupt memory or fail.
fn unfit(
    directory: &Path,
    group: MapGroup,
    sizes: &BTreeMap<String, u32>,
) -> Result<Vec<String>, OpenError> {
    let mut differences = Vec::new();
    if !directory.exists() {
        return Ok(differences);
    }
    for shape in MAPS.iter().filter(|shape| shape.group == group) {
        let pin = directory.join(shape.name);
        match syscalls::open_pinned(&pin) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                differences.push(format!("{} is missing", shape.name));
                continue;
            }
            Err(error) => {
                return Err(OpenError::io(
                    &error,
                    &format!("opening pinned map {}", pin.display()),
                ));
            }
            Ok(_) => {}
        }
        let info = MapInfo::from_pin(&pin).map_err(|error| {
            OpenError::kernel(
                &format!("examining {}", pin.display()),
                &error,
                &with_causes(&error),
            )
        })?;
        let kind = info.map_type().map_or(0, |kind| kind as u32);
        let pairs = [
            ("type", kind, shape.kind),
            ("key size", info.key_size(), shape.key_size),
            ("value size", info.value_size(), shape.value_size),
            ("entries", info.max_entries(), entries(shape, sizes)),
            ("flags", info.map_flags(), shape.flags),
        ];
        for (what, found, wanted) in pairs {
            if found != wanted {
                differences.push(format!(
                    "{} has {what} {found} instead of {wanted}",
                    shape.name
                ));
            }
        }
    }
    Ok(differences)
}

/// Whether a Service map that is pinned in `directory` has more room than is wanted.
fn is_smaller(directory: &Path, sizes: &BTreeMap<String, u32>) -> bool {
    let mut services = MAPS
        .iter()
        .filter(|shape| shape.group == MapGroup::Services);
    services.any(|shape| {
        let there = MapInfo::from_pin(directory.join(shape.name));
        there.is_ok_and(|there| there.max_entries() > entries(shape, sizes))
    })
}

/// Before Linux 5.11 maps count against `RLIMIT_MEMLOCK`, by default 64 KiB. Where raising it fails
/// it is either not needed or loading says what is missing.
fn raise_memlock_limit() {
    use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
    if let Err(errno) = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY) {
        tracing::debug!(%errno, "could not raise the locked memory limit");
    }
}
