//! One layer of a node's dataplane: a backend, what it holds of the state, when it is tried again
//! after a failure, and what the log was told of it. Knows no other layer. The caller has the
//! clock.

use std::time::{Duration, Instant};

use proxy_backend::milliseconds;
use proxy_model::{
    Attempts, Backend, Capability, ChangeSet, CompareError, Device, Difference, Fatal, Figure,
    NodeState, PacketLayer, Problem, RepairReport, ServiceFailure, ServicePortKey, SyncError,
    SyncReport, Syncing,
};

use super::{log, reported::Failures, summary::Synced};

/// A backend, and how it keeps up with the state.
pub struct Layer {
    syncing: Syncing<Box<dyn Backend>>,
    attempts: Attempts,
    /// After a failure: not tried before.
    due: Option<Instant>,
    /// It had a state in force, which the kernel keeps, whatever fails later.
    serves: bool,
    failures: Failures,
    /// What the last repair could not mend.
    problems: Vec<Problem>,
}

/// What came of bringing the state into force.
pub enum Advanced {
    /// There was nothing to do, or it is not due yet.
    Not,
    /// It holds the state now.
    Synced {
        /// Whether it was given the whole state, not only what changed.
        whole: bool,
        /// What it came to.
        synced: Synced,
        /// It served nothing before.
        first: bool,
    },
    /// It failed, and is tried again when it is due.
    Failed,
    /// It can never serve on this host.
    Fatal(Fatal),
}

impl Layer {
    /// A layer that was given nothing yet.
    pub fn new(backend: Box<dyn Backend>) -> Self {
        Self {
            syncing: Syncing::new(backend),
            attempts: Attempts::default(),
            due: None,
            serves: false,
            failures: Failures::default(),
            problems: Vec::new(),
        }
    }

    /// The name of its backend.
    pub fn name(&self) -> &'static str {
        self.syncing.backend().name()
    }

    /// What its backend cannot do.
    pub fn lacks(&self) -> &[Capability] {
        self.syncing.backend().lacks()
    }

    /// The devices that its backend looks at.
    pub fn devices(&self) -> Vec<Device> {
        self.syncing.backend().devices()
    }

    /// What its backend counts.
    pub fn figures(&self) -> Vec<Figure> {
        self.syncing.backend().figures()
    }

    /// Whether it had a state in force, if an older one than that of now.
    pub const fn serves(&self) -> bool {
        self.serves
    }

    /// Whether it holds the state of now, as far as is known, and decides by it.
    pub fn in_force(&self) -> bool {
        self.syncing.in_force() && !self.problems.iter().any(|problem| problem.harms)
    }

    /// Whether it needs the whole state next, so that a change is nothing to it.
    pub fn is_behind(&self) -> bool {
        self.syncing.is_behind()
    }

    /// Why it does not hold the state, if a sync or repair failed, or what a repair could not mend.
    pub fn failure(&self) -> Option<&str> {
        let problem = self.problems.iter().max_by_key(|problem| problem.harms);
        let problem = problem.map(|problem| &*problem.reason);
        self.attempts.failure().or(problem)
    }

    /// When it is tried again, if it failed.
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Is to be tried again at once, if it failed.
    pub fn hurry(&mut self, now: Instant) {
        self.due = self.due.map(|due| due.min(now));
    }

    /// Service ports that it could not program, and why.
    pub fn not_programmed(&self) -> impl Iterator<Item = (&ServicePortKey, &str)> {
        self.failures.all()
    }

    /// The state has changed.
    pub fn changed(&mut self, change: &ChangeSet) {
        self.syncing.changed(change);
    }

    /// What there is of a packet backend beneath it.
    pub fn lies_over(&mut self, beneath: PacketLayer) {
        self.syncing.lies_over(beneath);
    }

    /// Brings `state` into force, unless it holds it or waits after a failure.
    pub fn advance(&mut self, state: &NodeState, now: Instant) -> Advanced {
        if self.due.is_some_and(|due| now < due) {
            return Advanced::Not;
        }
        self.due = None;
        let change = self.syncing.due(state);
        if change.is_empty() {
            return Advanced::Not;
        }
        let started = Instant::now();
        let result = self.syncing.sync(state, &change);
        match self.took(result, now) {
            Ok(Ok(SyncReport { writes, failures })) => {
                self.tell_failures(state, failures);
                let synced = Synced::of(&change, writes);
                let first = !std::mem::replace(&mut self.serves, true);
                // The first sync is told by the backend, which knows what it took over.
                if !first {
                    let services = state.services.len();
                    log::synced(self.name(), &synced, &change, services, started.elapsed());
                }
                Advanced::Synced {
                    whole: change.whole,
                    synced,
                    first,
                }
            }
            Ok(Err(())) => Advanced::Failed,
            Err(fatal) => Advanced::Fatal(fatal),
        }
    }

    /// Compares the kernel with the state, and mends what differs. `None` while a sync is still to be
    /// made: that reads back what is there itself. The inner error: it failed, and a sync is due.
    pub fn repair(
        &mut self,
        state: &NodeState,
        now: Instant,
    ) -> Option<Result<Vec<Difference>, ()>> {
        let started = Instant::now();
        let result = self.syncing.repair(state)?;
        let result = result.map_err(|error| match error {
            // The sync that is due now says so again, and then another backend may take its place.
            SyncError::Fatal { reason, .. } => SyncError::Retry {
                reason,
                after: Duration::ZERO,
            },
            retry @ SyncError::Retry { .. } => retry,
        });
        // What a repair finds is never the end: see above.
        let report = self.took(result, now).ok()?;
        Some(report.map(|report| self.repaired(state, report, started.elapsed())))
    }

    fn repaired(
        &mut self,
        state: &NodeState,
        report: RepairReport,
        took: Duration,
    ) -> Vec<Difference> {
        let layer = self.name();
        self.tell_failures(state, report.failures);
        for problem in &report.problems {
            if !self.problems.contains(problem) {
                tracing::error!(layer, reason = problem.reason, "not repaired");
            }
        }
        self.problems = report.problems;
        log::repaired(layer, &report.repaired, report.writes, took);
        report.repaired
    }

    fn tell_failures(&mut self, state: &NodeState, now: Vec<ServiceFailure>) {
        let wanted = |key: &_| state.services.contains_key(key);
        let news = self.failures.take(now, wanted);
        log::programmed(self.name(), news);
    }

    /// Takes what became of an attempt. The inner error: it is tried again when it is due.
    fn took<R>(
        &mut self,
        result: Result<R, SyncError>,
        now: Instant,
    ) -> Result<Result<R, ()>, Fatal> {
        let failed = self.serves && self.attempts.failure().is_some();
        let took = self.attempts.took(result)?;
        if failed && took.is_ok() {
            tracing::info!(layer = self.name(), "in force again");
        }
        Ok(took.map_err(|wait| {
            self.due = Some(now + wait);
            tracing::error!(
                layer = self.name(),
                reason = self.attempts.failure(),
                retry_in_ms = milliseconds(wait),
                "sync failed"
            );
        }))
    }

    /// Whether somebody else may have changed what its backend wrote: a repair is due.
    pub fn disturbed(&mut self) -> bool {
        self.syncing.disturbed()
    }

    /// Has its backend do what it owes besides the state.
    pub fn tend(&mut self, state: &NodeState) {
        self.syncing.tend(state);
    }

    /// How the kernel differs from the state, without mending it.
    pub fn differences(&mut self, state: &NodeState) -> Result<Vec<Difference>, CompareError> {
        let differences = self.syncing.differences(state);
        match (differences, self.failure()) {
            (Err(CompareError::Behind), Some(reason)) => Err(CompareError::Failed {
                reason: format!("the last sync failed, so the kernel is known to differ: {reason}"),
            }),
            (differences, _) => differences,
        }
    }
}
