//! What a driver feeds: something that takes operations as they come, or a [`Backend`], which gets
//! the state as well.

use proxy_model::{
    Backend, Capability, RepairReport, ServiceFailure, SyncError, SyncReport, Syncing,
};

use crate::{Batch, Replica};

/// Takes operations as they come, and keeps no copy of the state: the incremental form of a
/// backend. One caller at a time, on a thread that may block.
pub trait BatchSink: Send + 'static {
    /// Its name.
    fn name(&self) -> &str;

    /// What it cannot do.
    fn lacks(&self) -> &[Capability];

    /// Applies a batch. A permanent failure is [`SyncError::Fatal`]; after [`SyncError::Retry`],
    /// [`Self::again`] is called.
    fn apply(&mut self, batch: Batch) -> Result<SyncReport, SyncError>;

    /// Retries what failed. `None`: it needs the whole state; the next batch is a reset.
    fn again(&mut self) -> Option<Result<SyncReport, SyncError>> {
        None
    }

    /// Whether to report to the brain what is in force. An observer that reports would count as a
    /// backend of the node, and as one that is behind once it has ended.
    fn reports(&self) -> bool {
        true
    }

    /// Takes note of a state that is already in force. Returns whether it can continue from that
    /// without being given it; if so, the first batch may be other than a reset.
    fn resumes(&self) -> bool {
        true
    }

    /// Takes the state that is in force already, where [`Self::resumes`] is false.
    fn already_in_force(&mut self, batch: Batch) {
        drop(batch);
    }

    /// Compares what is in force with the state, and repairs it. `None` if it cannot, or if no
    /// state is in force.
    fn repair(&mut self) -> Option<Result<RepairReport, SyncError>> {
        None
    }
}

/// A [`Backend`] with the copy of the state that it needs.
#[derive(Debug)]
pub struct Replicating<B> {
    syncing: Syncing<B>,
    replica: Replica,
    /// What the last sync could not program: that stays so until the next sync.
    failures: Vec<ServiceFailure>,
    reports: bool,
}

impl<B: Backend> Replicating<B> {
    /// A backend that was given nothing yet.
    pub fn new(backend: B) -> Self {
        Self {
            syncing: Syncing::new(backend),
            replica: Replica::new(),
            failures: Vec::new(),
            reports: true,
        }
    }

    /// An observer, which brings nothing into force and reports nothing.
    pub fn looking_on(backend: B) -> Self {
        Self {
            reports: false,
            ..Self::new(backend)
        }
    }

    fn sync(&mut self) -> Result<SyncReport, SyncError> {
        let change = self.replica.update();
        self.syncing.changed(&change);
        let state = self.replica.state();
        let change = self.syncing.due(state);
        if change.is_empty() {
            return Ok(SyncReport {
                writes: 0,
                failures: self.failures.clone(),
            });
        }
        let result = self.syncing.sync(state, &change);
        if let Ok(report) = &result {
            self.failures.clone_from(&report.failures);
        }
        result
    }
}

impl<B: Backend + 'static> BatchSink for Replicating<B> {
    fn name(&self) -> &str {
        self.syncing.backend().name()
    }

    fn lacks(&self) -> &[Capability] {
        self.syncing.backend().lacks()
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
        let repaired = self.syncing.repair(self.replica.state())?;
        if let Ok(report) = &repaired {
            self.failures.clone_from(&report.failures);
        }
        Some(repaired)
    }
}
