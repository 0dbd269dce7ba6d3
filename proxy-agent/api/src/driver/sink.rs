//! What a driver feeds: something that takes operations as they come, or a [`Backend`], which gets
//! the state as well.

use proxy_model::{Backend, Capability, RepairReport, ServiceFailure, SyncError, SyncReport};

use crate::{Batch, Replica};

/// Takes operations as they come, and keeps no copy of the state: the incremental form of a
/// backend. One caller at a time, on a thread that may block.
pub trait Sink: Send + 'static {
    /// How it is called.
    fn name(&self) -> &str;

    /// What it cannot do.
    fn lacks(&self) -> &[Capability];

    /// Applies a batch. A failure for good is [`SyncError::Fatal`]; after [`SyncError::Retry`],
    /// [`Self::again`] is called.
    fn apply(&mut self, batch: Batch) -> Result<SyncReport, SyncError>;

    /// Tries again what failed. `None`: it needs to be told everything; the next batch is a reset.
    fn again(&mut self) -> Option<Result<SyncReport, SyncError>> {
        None
    }

    /// Whether the brain is told what is in force. What only looks on would count as a backend of the
    /// node, and as one that is behind once it has ended.
    fn reports(&self) -> bool {
        true
    }

    /// Takes note of a state that is in force already. Returns whether it can go on from it without
    /// being told; if so, the first batch may be no reset.
    fn resumes(&self) -> bool {
        true
    }

    /// Takes the state that is in force already, where [`Self::resumes`] is false.
    fn already_in_force(&mut self, batch: Batch) {
        drop(batch);
    }

    /// Compares what is in force with the state, and mends it. `None` if it cannot, or if no state
    /// is in force.
    fn repair(&mut self) -> Option<Result<RepairReport, SyncError>> {
        None
    }
}

/// A [`Backend`] with the copy of the state that it needs.
#[derive(Debug)]
pub struct Replicating<B> {
    backend: B,
    replica: Replica,
    /// The backend does not hold the state of the last update: the next sync is a whole one.
    behind: bool,
    /// What the last sync could not program: it is still so while nothing is synced.
    failures: Vec<ServiceFailure>,
    reports: bool,
}

impl<B: Backend> Replicating<B> {
    /// One that was told nothing yet.
    pub fn new(backend: B) -> Self {
        Self {
            backend,
            replica: Replica::new(),
            behind: true,
            failures: Vec::new(),
            reports: true,
        }
    }

    /// One that brings nothing into force, and reports nothing.
    pub fn looking_on(backend: B) -> Self {
        Self {
            reports: false,
            ..Self::new(backend)
        }
    }

    fn sync(&mut self) -> Result<SyncReport, SyncError> {
        let mut change = self.replica.update();
        let state = self.replica.state();
        if self.behind {
            change = state.as_change_set();
        }
        if change.is_empty() {
            return Ok(SyncReport {
                writes: 0,
                failures: self.failures.clone(),
            });
        }
        let result = self.backend.sync(state, &change);
        self.behind = result.is_err();
        if let Ok(report) = &result {
            self.failures.clone_from(&report.failures);
        }
        result
    }
}

impl<B: Backend + 'static> Sink for Replicating<B> {
    fn name(&self) -> &str {
        self.backend.name()
    }

    fn lacks(&self) -> &[Capability] {
        self.backend.lacks()
    }

    fn apply(&mut self, batch: Batch) -> Result<SyncReport, SyncError> {
        self.replica.apply(batch);
        self.sync()
    }

    fn again(&mut self) -> Option<Result<SyncReport, SyncError>> {
        Some(self.sync())
    }

    fn resumes(&self) -> bool {
        false
    }

    fn reports(&self) -> bool {
        self.reports
    }

    fn already_in_force(&mut self, batch: Batch) {
        self.replica.apply(batch);
    }

    fn repair(&mut self) -> Option<Result<RepairReport, SyncError>> {
        if self.behind {
            return None;
        }
        let repaired = self.backend.repair(self.replica.state());
        self.behind = repaired.is_err();
        if let Ok(report) = &repaired {
            self.failures.clone_from(&report.failures);
        }
        Some(repaired)
    }
}
