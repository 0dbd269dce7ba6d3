//! What a backend holds of the state, what it must be given next, and when to retry what failed:
//! the same for the agent's pipeline and the driver of the node API. Pure: the caller has the
//! state, the clock and the log.

use std::time::Duration;

use thiserror::Error;

use crate::{
    Backend, Backoff, ChangeSet, CompareError, Difference, FatalCause, NodeState, PacketLayer,
    RepairReport, SyncError, SyncReport,
};

/// A backend, and what it holds.
#[derive(Debug)]
pub struct Syncing<B> {
    backend: B,
    /// The backend does not hold the state of the last sync: the next sync is a whole one.
    behind: bool,
    /// How the state differs from that of the last sync. Means nothing while the backend is behind,
    /// which needs the whole.
    unsynced: ChangeSet,
}

impl<B: Backend> Syncing<B> {
    /// A backend that was given nothing yet.
    pub fn new(backend: B) -> Self {
        Self {
            backend,
            behind: true,
            unsynced: ChangeSet::default(),
        }
    }

    /// The backend, for queries.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Tells the backend what there is of a packet backend beneath it ([`Backend::lies_over`]).
    pub fn lies_over(&mut self, beneath: PacketLayer) {
        if self.backend.lies_over(beneath) {
            self.behind = true;
        }
    }

    /// Whether the backend holds the state, as far as is known.
    pub fn in_force(&self) -> bool {
        !self.behind && self.unsynced.is_empty()
    }

    /// Whether the next sync is a whole one.
    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// The state has changed by `change`.
    pub fn changed(&mut self, change: &ChangeSet) {
        if self.in_force() {
            self.unsynced.clone_from(change);
        } else if !change.is_empty() {
            // Whoever missed a change gets everything: two of them in a row are not in order.
            self.behind = true;
        }
    }

    /// What the backend must be given so that it holds `state`; empty if nothing.
    pub fn due(&mut self, state: &NodeState) -> ChangeSet {
        let change = std::mem::take(&mut self.unsynced);
        if self.behind {
            state.as_change_set()
        } else {
            change
        }
    }

    /// Gives it `change`, which is what [`Syncing::due`] returned, or the whole state.
    pub fn sync(&mut self, state: &NodeState, change: &ChangeSet) -> Result<SyncReport, SyncError> {
        let result = self.backend.sync(state, change);
        self.behind = result.is_err();
        result
    }

    /// Compares what is in force with `state`, and repairs it. `None` while a sync is due: a sync
    /// reads back what is there by itself, and no backend is asked to repair what it was not given.
    pub fn repair(&mut self, state: &NodeState) -> Option<Result<RepairReport, SyncError>> {
        if !self.in_force() {
            return None;
        }
        let result = self.backend.repair(state);
        self.behind = result.is_err();
        Some(result)
    }

    /// How what is in force differs from `state`.
    pub fn differences(&mut self, state: &NodeState) -> Result<Vec<Difference>, CompareError> {
        if !self.in_force() {
            return Err(CompareError::Behind);
        }
        self.backend.differences(state)
    }

    /// Whether another process may have changed what the backend wrote: a repair is due.
    pub fn disturbed(&mut self) -> bool {
        self.in_force() && self.backend.disturbed()
    }

    /// Makes the backend do what it owes besides `state`.
    pub fn tend(&mut self, state: &NodeState) {
        if self.in_force() {
            self.backend.tend(state);
        }
    }
}

/// A permanent failure: no later attempt can succeed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct Fatal {
    /// Whose matter it is.
    pub cause: FatalCause,
    /// What was attempted, on what, what stopped it, and what to do.
    pub reason: String,
}

/// The results of syncs and repairs, and when to retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempts {
    backoff: Backoff,
    /// Why the last one failed, if it did.
    failure: Option<String>,
}

/// The longest wait before a failed sync is retried.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

impl Default for Attempts {
    fn default() -> Self {
        Self {
            // Each failure says itself how long to wait.
            backoff: Backoff::new(Duration::ZERO, LONGEST_RETRY),
            failure: None,
        }
    }
}

impl Attempts {
    /// Records the result of an attempt. The inner error is how long to wait before the next one:
    /// as long as the backend asks for, twice as long with each failure in a row, up to 30 seconds.
    pub fn took<R>(&mut self, result: Result<R, SyncError>) -> Result<Result<R, Duration>, Fatal> {
        match result {
            Ok(report) => {
                *self = Self::default();
                Ok(Ok(report))
            }
            Err(SyncError::Retry { reason, after }) => {
                self.failure = Some(reason);
                Ok(Err(self.backoff.failed_after(after)))
            }
            Err(SyncError::Fatal { cause, reason }) => {
                self.failure = Some(reason.clone());
                Err(Fatal { cause, reason })
            }
        }
    }

    /// Why the last one failed; `None` if it did not.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Failures in a row.
    pub fn failures(&self) -> u32 {
        self.backoff.failures()
    }
}

#[cfg(test)]
mod tests;
