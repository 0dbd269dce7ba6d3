//! The part of the eBPF dataplane that talks to the kernel, Linux only: puts its parts in order,
//! and nothing else. Decides nothing about what the maps must hold: `tables` does.

mod cgroup;
mod cleanup;
mod earlier;
mod edge;
mod error;
mod figures;
mod fit;
mod held_maps;
mod in_force;
mod leave;
mod links;
mod load;
mod maps;
mod memory_limit;
mod neighbours;
mod netns;
mod on_linux;
mod outside;
mod pins;
mod probe;
mod programs_log;
mod release;
mod repair;
mod rights;
mod sizes;
mod syscalls;
mod task_flags;
mod tc;

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use cleanup::cleanup;
pub use error::OpenError;
use error::with_causes;
pub use figures::described as figures_described;
pub use in_force::is_programmed;
use neighbours::tell_of_programs;
pub use on_linux::OnLinux;
use outside::Outside;
pub use pins::bpffs::mount_at as mount_bpffs;
use probe::probe;
use proxy_common::{affinity::AffinityKey, names::MAPS};
use proxy_model::{
    Backend, Capability, ChangeSet, CompareError, Device, Difference, FatalCause, Figure,
    NodeState, PacketLayer, RepairReport, ServiceFailure, SyncError, SyncReport,
};

use proxy_backend::{Timeouts, milliseconds};

use self::{
    cgroup::Cgroup,
    held_maps::HeldMap,
    links::HeldLink,
    load::{Loaded, Place},
    maps::KernelMaps,
    pins::{Generations, PinDir},
};
use super::{
    NAME,
    capacity::Capacity,
    flags::Tc,
    lacking,
    pattern::Pattern,
    programmed::Programmed,
    tables::{Outcome, Tables},
};

/// How long to wait before what the maps hold is read back and a sync is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What the backend must know.
#[derive(Debug, Clone)]
pub struct EbpfOptions {
    /// Where maps and links are pinned; one agent at a time.
    pub pin_dir: PathBuf,
    /// The cgroup whose sockets are served; the root of the hierarchy when not given.
    pub cgroup_path: Option<PathBuf>,
    /// Entries by map name, for those that shall differ from the defaults.
    pub map_sizes: BTreeMap<String, u32>,
    /// Whether the programs write debug lines.
    pub kernel_log: bool,
    /// Whether programs on devices serve clients outside.
    pub tc: Tc,
    /// The devices that they are on; chosen here when none is given.
    pub devices: Vec<Pattern>,
    /// Whether endpoints on this node see the address of clients outside that would be masqueraded; those on
    /// other nodes see this node's.
    pub keep_client_address: bool,
    /// Which ports of this node they use in the place of a client's where the endpoint sees this node.
    pub source_ports: RangeInclusive<u16>,
    /// For how long they remember connections.
    pub timeouts: Timeouts,
}

/// The eBPF dataplane.
pub struct EbpfBackend {
    options: EbpfOptions,
    pins: PinDir,
    cgroup: Cgroup,
    loaded: Loaded,
    maps: Vec<HeldMap>,
    tables: Tables<KernelMaps>,
    capacity: Capacity,
    outside: Outside,
    /// Empty until the first sync attaches.
    links: Vec<HeldLink>,
    /// When the backend was opened; taken by the first sync that attaches.
    opened: Option<Instant>,
}

impl EbpfBackend {
    /// Locks the pins and loads the programs. What serves already goes on as it is: programs are
    /// attached by the first sync, after the maps are right.
    pub fn open(options: &EbpfOptions) -> Result<Self, OpenError> {
        let opened = Instant::now();
        rights::check()?;
        let cgroup = Cgroup::open(options.cgroup_path.as_deref())?;
        let pins = PinDir::open(&options.pin_dir)?;
        let mut loaded = load::load(&pins, &options.map_sizes, options.kernel_log)?;
        let maps = held_maps::hold(&loaded.ebpf, &MAPS)?;
        let tables = KernelMaps::take(&mut loaded.ebpf)?;
        let capacity = capacity(&options.map_sizes);
        let mut tables = Tables::new(tables, capacity);
        tables.keep_clients(options.keep_client_address);
        Ok(Self {
            options: options.clone(),
            pins,
            cgroup,
            loaded,
            maps,
            outside: Outside::default(),
            tables,
            capacity,
            links: Vec::new(),
            opened: Some(opened),
        })
    }

    /// Into maps that take the place of those of an earlier run, what those serve goes first: what
    /// came to the cluster since must not take its room. Refuses maps that were made too small for
    /// it.
    fn keep_what_was_served(&mut self, state: &NodeState) -> Result<(), SyncError> {
        if self.opened.is_none() || !self.loaded.rebuilt {
            return Ok(());
        }
        let before = earlier::programmed(&self.pins.services());
        let before = before.map_err(|error| not_attached(&error))?;
        let mut kept = state.clone();
        kept.services = state
            .services
            .iter()
            .filter(|(key, _)| before.services.contains_key(*key))
            .map(|(key, service)| (key.clone(), Arc::clone(service)))
            .collect();
        self.tables.remember(before);
        let outcome = self.tables.sync(&kept, &kept.as_change_set());
        self.tables.remember(Programmed::default());
        let outcome = outcome.map_err(|error| later(&error))?;
        let Generations { present, next, .. } = self.pins.service_maps();
        if let Err(error) = earlier::carry_clients::<AffinityKey>(&present, &next, "AFFINITY") {
            tracing::warn!(%error, "pods may change the endpoints that they keep");
        }
        match outcome.failures.iter().next() {
            Some((key, reason)) if self.loaded.smaller => Err(SyncError::Fatal {
                cause: FatalCause::Other,
                reason: format!(
                    "maps of the given sizes cannot hold what is served now, which therefore stays \
                     as it is: {key}: {reason}"
                ),
            }),
            // It grew meanwhile. That is no reason to leave the others as they were.
            _ => Ok(()),
        }
    }

    /// Attaches the programs, in the place of those of an earlier run.
    fn attach(&mut self, services: usize, opened: Instant) -> Result<(), OpenError> {
        let directory = self.pins.links();
        let attached = links::attach(&self.loaded.ebpf, &self.cgroup, &directory)?;
        if self.loaded.rebuilt {
            self.pins.service_maps().replace()?;
            self.loaded.place = Place::InForce;
        }
        self.pins.remove_stale();
        let memory = self.log_memory();
        tracing::info!(
            backend = self.name(),
            services,
            cgroup = %self.cgroup.path.display(),
            pin_dir = %self.pins.path().display(),
            refusal = self.loaded.refusal,
            adopted = self.loaded.adopted,
            programs_swapped = attached.swapped,
            programs_attached = attached.fresh,
            maps_kib = memory / 1024,
            duration_ms = milliseconds(opened.elapsed()),
            "serving"
        );
        self.links = attached.links;
        let ours = self.links.iter().filter_map(HeldLink::program);
        neighbours::tell(&self.cgroup, &ours.collect::<Vec<_>>());
        Ok(())
    }

    /// Logs the kernel memory of each map; returns the sum in bytes.
    fn log_memory(&self) -> u64 {
        let used: BTreeMap<_, _> = self.tables.programmed().used.by_map().into();
        let mut sum = 0;
        for map in &self.maps {
            let bytes = map.memory().unwrap_or(0);
            sum += bytes;
            tracing::debug!(
                map = map.shape.name,
                entries = used.get(map.shape.name),
                kib = bytes / 1024,
                "map memory"
            );
        }
        sum
    }
}

fn later(error: &impl std::fmt::Display) -> SyncError {
    SyncError::Retry {
        reason: error.to_string(),
        after: RETRY_AFTER,
    }
}

/// What an attachment that failed means.
fn not_attached(error: &OpenError) -> SyncError {
    let cause = match error {
        OpenError::Later(_) => return later(error),
        OpenError::Host(_) => FatalCause::Host,
        OpenError::Locked(_) | OpenError::Held { .. } | OpenError::Other(_) => FatalCause::Other,
    };
    SyncError::Fatal {
        cause,
        reason: error.to_string(),
    }
}

fn failures(outcome: Outcome) -> Vec<ServiceFailure> {
    let failures = outcome.failures.into_iter();
    failures
        .map(|(key, reason)| ServiceFailure { key, reason })
        .collect()
}

impl Backend for EbpfBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn lacks(&self) -> &[Capability] {
        // What nobody tried yet is not lacking.
        lacking(if self.opened.is_some() {
            self.options.tc != Tc::Off
        } else {
            self.outside.serves_clients()
        })
    }

    fn sync(&mut self, state: &NodeState, change: &ChangeSet) -> Result<SyncReport, SyncError> {
        self.keep_what_was_served(state)?;
        let outcome = self
            .tables
            .sync(state, change)
            .map_err(|error| later(&error))?;
        if let Some(first) = outcome.left_out.first() {
            tracing::error!(
                addresses = outcome.left_out.len(),
                %first,
                "map NODE_ADDRS is full: NodePorts do not answer on these addresses; raise the \
                 limit with --map-size NODE_ADDRS=N, or choose fewer with --nodeport-addresses"
            );
        }
        if let Some(opened) = self.opened {
            self.attach(state.services.len(), opened)
                .map_err(|error| not_attached(&error))?;
            self.opened = None;
        }
        self.serve_outside(state);
        Ok(SyncReport {
            writes: outcome.writes,
            failures: failures(outcome),
        })
    }

    fn differences(&mut self, state: &NodeState) -> Result<Vec<Difference>, CompareError> {
        let mut differences = self.host_differences().map_err(CompareError::failed)?;
        let entries = self.tables.differences(state);
        differences.extend(entries.map_err(CompareError::failed)?);
        Ok(differences)
    }

    fn repair(&mut self, state: &NodeState) -> Result<RepairReport, SyncError> {
        self.mend(state).map_err(|error| later(&error))
    }

    fn tend(&mut self, state: &NodeState) {
        self.serve_outside_again(state);
    }

    fn lies_over(&mut self, beneath: PacketLayer) -> bool {
        let outside = self.outside.lies_over(beneath) && self.options.tc != Tc::Off;
        let tables = self.tables.lies_over(beneath == PacketLayer::Serves);
        outside || tables
    }

    fn devices(&self) -> Vec<Device> {
        self.outside.devices(self.options.keep_client_address)
    }

    fn figures(&self) -> Vec<Figure> {
        figures::figures(self)
    }
}

/// Entries the maps can hold, with the configured sizes.
fn capacity(sizes: &BTreeMap<String, u32>) -> Capacity {
    let entries = |name: &str| {
        let shape = MAPS
            .iter()
            .find(|shape| shape.name == name)
            .expect("a name of the table");
        sizes::asked(shape, sizes) as usize
    };
    Capacity {
        services: entries("SERVICES"),
        frontends: entries("FRONTENDS"),
        sets: entries("SETS"),
        slots: entries("SLOTS"),
        members: entries("MEMBERS"),
        ranges: entries("RANGES"),
        node_addresses: entries("NODE_ADDRS"),
    }
}
