//! What the log was told of syncs and repairs, and what it must be told next.

use std::time::{Duration, Instant};

use proxy_model::{ChangeSet, Difference, NodeState, RepairReport, ServicePortKey, SyncReport};

use super::{
    log,
    reported::Reported,
    summary::{Summary, Synced},
};

/// Tells the log.
#[derive(Debug, Default)]
pub struct Journal {
    told: Reported,
    summary: Summary,
    /// What the last repair could not mend.
    problems: Vec<String>,
    /// Whether a sync ever succeeded.
    serving: bool,
}

impl Journal {
    /// Whether a sync ever succeeded.
    pub const fn is_serving(&self) -> bool {
        self.serving
    }

    /// Service ports that are not programmed, and why.
    pub fn not_programmed(&self) -> impl Iterator<Item = (&ServicePortKey, &str)> {
        self.told.not_programmed()
    }

    /// `state` is up to date: what is wrong with the cluster's objects is told.
    pub fn settled(&mut self, state: &NodeState) {
        log::news(self.told.diagnostics(&state.diagnostics));
    }

    /// `state` is in force.
    pub fn synced(
        &mut self,
        state: &NodeState,
        change: &ChangeSet,
        report: SyncReport,
        took: Duration,
    ) {
        let services = &state.services;
        let wanted = |key: &_| services.contains_key(key);
        log::news(self.told.failures(report.failures, wanted));
        // The first sync is told by the backend, which knows what it took over.
        if std::mem::replace(&mut self.serving, true) {
            let synced = Synced::of(change, report.writes);
            log::synced(&synced, change, services.len(), took);
            self.summary.add(synced);
        }
    }

    /// What differed from `state` is mended. Returns it.
    pub fn repaired(
        &mut self,
        state: &NodeState,
        report: RepairReport,
        took: Duration,
    ) -> Vec<Difference> {
        let wanted = |key: &_| state.services.contains_key(key);
        log::news(self.told.failures(report.failures, wanted));
        for problem in &report.problems {
            if !self.problems.contains(problem) {
                tracing::error!(reason = problem, "not repaired");
            }
        }
        self.problems = report.problems;
        log::repaired(&report.repaired, report.writes, took);
        report.repaired
    }

    /// Tells what came into force since the last time, if anything did and it is time.
    pub fn summarise(&mut self, state: &NodeState) {
        if let Some(synced) = self.summary.due(Instant::now()) {
            log::summary(&synced, state.services.len());
        }
    }
}
