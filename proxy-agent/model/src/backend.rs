//! The contract between the pipeline and a dataplane.

mod boxed;
mod device;
mod difference;
mod figure;
#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

use thiserror::Error;

use crate::{Capability, ChangeSet, NodeState, ServicePortKey};
pub use device::Device;
pub use difference::{Difference, DifferenceKind, Problem, RepairReport};
pub use figure::{Figure, FigureKind};

/// A dataplane implementation: turns node-local state into kernel objects.
///
/// Synchronous: the caller decides on which thread it blocks. One caller at a time. [`name`],
/// [`lacks`] and [`sync`] make a backend; the rest is for those that can read back what they wrote.
///
/// [`name`]: Backend::name
/// [`lacks`]: Backend::lacks
/// [`sync`]: Backend::sync
pub trait Backend: Send {
    /// The name that `--backend` takes.
    fn name(&self) -> &'static str;

    /// What it cannot do on this host, as far as it knows now: asked again after each sync and repair.
    /// Service ports that need some of it are programmed as far as possible.
    fn lacks(&self) -> &[Capability];

    /// Makes the dataplane equal to `state`.
    ///
    /// `change` leads from the state of the last successful call to `state`; on the first call
    /// and after any error it is the whole state. Idempotent. A backend may ignore `change`.
    fn sync(&mut self, state: &NodeState, change: &ChangeSet) -> Result<SyncReport, SyncError>;

    /// Compares the dataplane with `state` and writes nothing. Empty when all is as it should be;
    /// an error says why that cannot be told.
    ///
    /// The default always returns an error: it is for a backend that cannot read back what it wrote.
    fn differences(&mut self, _state: &NodeState) -> Result<Vec<Difference>, CompareError> {
        let reason = format!(
            "the backend {} cannot compare what it wrote with the state: whether they differ is \
             not known; a repair writes everything anew",
            self.name()
        );
        Err(CompareError::Unable { reason })
    }

    /// Compares the dataplane with `state`, the state of the last [`Backend::sync`], which
    /// succeeded, and writes only what differs: never called before one, nor after one that failed
    /// ([`Syncing`](crate::Syncing) sees to that). Services that could not be programmed are tried
    /// again.
    ///
    /// The default syncs the whole state and names no difference: only a backend that can compare
    /// does.
    fn repair(&mut self, state: &NodeState) -> Result<RepairReport, SyncError> {
        let report = self.sync(state, &state.as_change_set())?;
        Ok(RepairReport {
            writes: report.writes,
            failures: report.failures,
            ..RepairReport::default()
        })
    }

    /// Whether somebody else may have changed what it wrote: a [`Backend::repair`] is due. Cheap:
    /// asked every second.
    ///
    /// The default is never: periodic comparison has to do.
    fn disturbed(&mut self) -> bool {
        false
    }

    /// Does what it owes besides the state, which is in force: what could not be cleaned up when that
    /// came, and has to be tried again. Bounded in time, a small part of a second: called about every
    /// second.
    ///
    /// The default does nothing.
    fn tend(&mut self, _state: &NodeState) {}

    /// What becomes of what this one passes on. Told before each sync and when it changes. Returns whether
    /// what this one has in force depends on that, and must be given the whole state: it may leave to the
    /// one beneath what it cannot do itself.
    ///
    /// The default ignores it: it is for a backend that leaves nothing to others.
    fn lies_over(&mut self, _beneath: PacketLayer) -> bool {
        false
    }

    /// The devices of this node that packets from outside may come in by, and whether programs on them
    /// serve clients outside.
    ///
    /// The default is none: it is for a backend that needs no device.
    fn devices(&self) -> Vec<Device> {
        Vec::new()
    }

    /// What is worth watching: sizes, memory, what the dataplane counted. Cheap enough to be asked
    /// for every few seconds.
    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }
}

/// What there is of a packet backend beneath a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PacketLayer {
    /// There is none: what is passed on, nobody serves.
    #[default]
    Absent,
    /// There is one that has no state in force yet.
    Waits,
    /// It has a state in force.
    Serves,
}

/// What a successful [`Backend::sync`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SyncReport {
    /// Kernel objects written (inserted, changed or removed).
    pub writes: usize,
    /// Services that could not be programmed although the sync as a whole succeeded. What was
    /// programmed for them before stays; the backend tries them again on every sync.
    pub failures: Vec<ServiceFailure>,
}

/// Why one Service port could not be programmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFailure {
    /// Which.
    pub key: ServicePortKey,
    /// What was attempted, what stopped it, and what to do.
    pub reason: String,
}

impl fmt::Display for ServiceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.reason)
    }
}

/// Why a sync failed as a whole. What was in force before it stays as far as it was not yet
/// replaced, and every completed write left the dataplane consistent.
#[derive(Debug, Error)]
pub enum SyncError {
    /// The same call with the whole state may succeed after a while.
    #[error("{reason}")]
    Retry {
        /// What was attempted, on what, and what stopped it.
        reason: String,
        /// How long to wait at least.
        after: Duration,
    },
    /// No later call can succeed on this host; the agent must stop and say why.
    #[error("{reason}")]
    Fatal {
        /// Whose matter it is.
        cause: FatalCause,
        /// What was attempted, on what, what stopped it, and what to do.
        reason: String,
    },
}

/// Why it cannot be told how the dataplane differs from the state.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompareError {
    /// This backend never can: it cannot read back what it wrote, or writes nothing.
    #[error("{reason}")]
    Unable {
        /// Why not, and what to do.
        reason: String,
    },
    /// The state was not brought into force. No backend is asked then; see [`Syncing`](crate::Syncing).
    #[error("the last sync failed, so the kernel is known to differ; see the log")]
    Behind,
    /// The attempt failed; a later one may succeed.
    #[error("{reason}")]
    Failed {
        /// What was attempted, on what, and what stopped it.
        reason: String,
    },
}

impl CompareError {
    /// The attempt failed with `error`, which says what was attempted, and on what.
    pub fn failed(error: impl fmt::Display) -> Self {
        Self::Failed {
            reason: error.to_string(),
        }
    }
}

/// Whose matter a [`SyncError::Fatal`] is. Whoever starts agents acts on it: a host that cannot
/// must be changed first, anything else may be worth another start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FatalCause {
    /// This host, or the rights of this process, do not allow it.
    Host,
    /// Anything else.
    Other,
}
