//! The eBPF dataplane: puts its parts in order, and nothing else.
//!
//! ```text
//! NodeState, ChangeSet ──> program (order of writes) ──> maps ──> kernel programs
//!                             ▲                           │
//!                          programmed <── adopt <── entries      on start, after an error
//! ```
//! Pure: `encode`, `program`, `capacity`, `adopt`, `numbers`, `render`. They talk to the kernel:
//! `pins`, `cgroup`, `load`, `links`, `cleanup`, `kernel_maps`, `syscalls`,
//! `rights`.

mod adopt;
mod capacity;
mod cgroup;
mod cleanup;
mod encode;
mod entry;
mod error;
mod kernel_maps;
mod links;
mod load;
mod memory_maps;
mod numbers;
mod pins;
mod program;
mod programmed;
mod render;
mod rights;
mod syscalls;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::{Duration, Instant},
};

use aya_log::EbpfLogger;
pub use cleanup::{Cleanup, cleanup};
pub use error::OpenError;
use error::with_causes;
use proxy_common::names::{MAPS, MapGroup};
use proxy_model::{
    Backend, Change, ChangeSet, Difference, FatalCause, NodeState, RepairReport, ServiceFailure,
    ServicePortKey, ServiceState, SyncError, SyncReport,
};
pub use render::render;

use crate::logging::milliseconds;

use self::{
    capacity::Capacity,
    cgroup::Cgroup,
    entry::MapError,
    kernel_maps::KernelMaps,
    load::Loaded,
    pins::PinDir,
    program::{ProgramError, Programmer},
};

/// How long to wait before what the maps hold is read back and a sync is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What the backend must know.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where maps and links are pinned; one agent at a time.
    pub pin_dir: PathBuf,
    /// The cgroup whose sockets are served; the root of the hierarchy when not given.
    pub cgroup_path: Option<PathBuf>,
    /// Entries by map name, for those that shall differ from the defaults.
    pub map_sizes: BTreeMap<String, u32>,
    /// Whether the programs write debug lines.
    pub kernel_log: bool,
}

/// The eBPF dataplane.
pub struct EbpfBackend {
    pins: PinDir,
    cgroup: Cgroup,
    loaded: Loaded,
    programmer: Programmer<KernelMaps>,
    /// What the maps hold is known to the programmer; otherwise it must be read back.
    known: bool,
    /// Service ports that could not be programmed, tried again on every sync.
    failed: BTreeSet<ServicePortKey>,
    /// When the backend was opened; taken by the first sync that attaches.
    opened: Option<Instant>,
}

impl EbpfBackend {
    /// Locks the pins and loads the programs. What serves already goes on as it is: programs are
    /// attached by the first sync, after the maps are right.
    pub fn open(options: &Options) -> Result<Self, OpenError> {
        let opened = Instant::now();
        rights::check()?;
        let cgroup = Cgroup::open(options.cgroup_path.as_deref())?;
        let pins = PinDir::open(&options.pin_dir)?;
        let mut loaded = load::load(&pins, &options.map_sizes, options.kernel_log)?;
        let maps = KernelMaps::take(&mut loaded.ebpf)?;
        Ok(Self {
            pins,
            cgroup,
            loaded,
            programmer: Programmer::new(maps, capacity(&options.map_sizes)),
            known: false,
            failed: BTreeSet::new(),
            opened: Some(opened),
        })
    }

    /// The programs' debug lines, to be read by the caller; an error where they are off.
    pub fn take_kernel_log(&mut self) -> Result<EbpfLogger<&'static dyn log::Log>, aya_log::Error> {
        EbpfLogger::init(&mut self.loaded.ebpf)
    }

    /// Changes the maps. An error of the maps leaves what they hold unknown.
    fn program(&mut self, state: &NodeState, change: &ChangeSet) -> Result<Outcome, MapError> {
        let whole = change.whole || !self.known;
        if !self.known {
            self.programmer.adopt()?;
        }
        self.known = false;
        let mut failures = BTreeMap::new();
        if whole {
            self.failed.clear();
            for (key, service) in &state.services {
                self.upsert(key, service, &mut failures)?;
            }
        } else {
            for change in &change.changes {
                if let Change::Upsert { key, state } = change {
                    self.upsert(key, state, &mut failures)?;
                }
            }
        }
        self.programmer.settle()?;
        for key in self.gone(state, change, whole) {
            self.programmer.remove(&key)?;
        }
        // Removals may have made room.
        let mut again = std::mem::take(&mut self.failed);
        again.extend(std::mem::take(&mut failures).into_keys());
        for key in again {
            if let Some(service) = state.services.get(&key) {
                self.upsert(&key, service, &mut failures)?;
            }
        }
        self.programmer.settle()?;
        self.failed = failures.keys().cloned().collect();
        self.known = true;
        Ok(Outcome {
            writes: self.programmer.take_writes(),
            failures,
        })
    }

    fn upsert(
        &mut self,
        key: &ServicePortKey,
        service: &ServiceState,
        failures: &mut BTreeMap<ServicePortKey, String>,
    ) -> Result<(), MapError> {
        match self.programmer.upsert(key, service) {
            Err(ProgramError::Map(error)) => return Err(error),
            Err(ProgramError::Refused(reason)) => {
                failures.insert(key.clone(), reason);
            }
            Ok(()) => {
                failures.remove(key);
            }
        }
        Ok(())
    }

    /// Service ports that are programmed and no longer wanted.
    fn gone(&self, state: &NodeState, change: &ChangeSet, whole: bool) -> Vec<ServicePortKey> {
        if whole {
            let programmed = self.programmer.programmed().services.keys();
            return programmed
                .filter(|key| !state.services.contains_key(*key))
                .cloned()
                .collect();
        }
        let deleted = change.changes.iter().filter_map(|change| match change {
            Change::Delete { key } => Some(key.clone()),
            Change::Upsert { .. } => None,
        });
        deleted.collect()
    }

    /// Refuses to replace maps of an earlier run by smaller ones that cannot hold what those serve.
    fn keep_what_was_served(&self, outcome: &Outcome) -> Result<(), OpenError> {
        if !self.loaded.rebuilt || outcome.failures.is_empty() {
            return Ok(());
        }
        let served = load::served_before(&self.pins)?;
        let lost = outcome
            .failures
            .iter()
            .find(|(key, _)| served.contains(*key));
        lost.map_or(Ok(()), |(key, reason)| {
            Err(OpenError::Other(format!(
                "maps of the given sizes cannot hold what is served now, so that stays as it is: \
                 {key}: {reason}"
            )))
        })
    }

    /// Attaches the programs, in the place of those of an earlier run.
    fn attach(&mut self, services: usize, opened: Instant) -> Result<(), OpenError> {
        let directory = self.pins.links();
        let attached = links::attach(&mut self.loaded.ebpf, &self.cgroup, &directory)?;
        if self.loaded.rebuilt {
            load::settle_rebuilt(&self.pins)?;
            self.loaded.services = self.pins.services();
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
        Ok(())
    }

    /// Logs the kernel memory of each map; returns the sum in bytes.
    fn log_memory(&self) -> u64 {
        let used: BTreeMap<_, _> = self.programmer.programmed().used.by_map().into();
        let mut sum = 0;
        for shape in &MAPS {
            let directory = match shape.group {
                MapGroup::Services => self.loaded.services.clone(),
                MapGroup::Flows => self.pins.flows(),
            };
            let bytes = kernel_maps::memory(&directory.join(shape.name)).unwrap_or(0);
            sum += bytes;
            tracing::debug!(
                map = shape.name,
                entries = used.get(shape.name),
                kib = bytes / 1024,
                "map memory"
            );
        }
        sum
    }
}

/// What programming the maps came to.
#[derive(Debug)]
struct Outcome {
    writes: usize,
    failures: BTreeMap<ServicePortKey, String>,
}

impl Backend for EbpfBackend {
    fn name(&self) -> &'static str {
        "ebpf"
    }

    fn sync(&mut self, state: &NodeState, change: &ChangeSet) -> Result<SyncReport, SyncError> {
        let outcome = self
            .program(state, change)
            .map_err(|error| SyncError::Retry {
                reason: error.to_string(),
                after: RETRY_AFTER,
            })?;
        if let Some(opened) = self.opened {
            self.keep_what_was_served(&outcome)
                .and_then(|()| self.attach(state.services.len(), opened))
                .map_err(|error| SyncError::Fatal {
                    cause: match error {
                        OpenError::Host(_) => FatalCause::Host,
                        OpenError::Locked(_) | OpenError::Other(_) => FatalCause::Other,
                    },
                    reason: error.to_string(),
                })?;
            self.opened = None;
        }
        let failures = outcome.failures.into_iter();
        Ok(SyncReport {
            writes: outcome.writes,
            failures: failures
                .map(|(key, reason)| ServiceFailure { key, reason })
                .collect(),
        })
    }

    fn differences(&mut self, _: &NodeState) -> Result<Vec<Difference>, SyncError> {
        Err(SyncError::Retry {
            reason: "this version does not compare the kernel yet".into(),
            after: RETRY_AFTER,
        })
    }

    fn repair(&mut self, state: &NodeState) -> Result<RepairReport, SyncError> {
        self.known = false;
        let report = self.sync(state, &state.as_change_set())?;
        Ok(RepairReport {
            repaired: Vec::new(),
            writes: report.writes,
            failures: report.failures,
        })
    }
}

/// Entries the maps can hold, with the configured sizes.
fn capacity(sizes: &BTreeMap<String, u32>) -> Capacity {
    let entries = |name: &str| {
        let shape = MAPS
            .iter()
            .find(|shape| shape.name == name)
            .expect("a name of the table");
        load::entries(shape, sizes) as usize
    };
    Capacity {
        services: entries("SERVICES"),
        frontends: entries("FRONTENDS"),
        sets: entries("SETS"),
        slots: entries("SLOTS"),
        members: entries("MEMBERS"),
    }
}
