//! The sole owner of the state: folds events into the mind, settles what follows from them, and
//! hands the change to the backend. Says what came of it; does not know who counts it, nor who
//! else wants the state.

mod alternatives;
#[cfg(test)]
pub(crate) mod fake;
mod gaps;
mod log;
mod mind;
mod outcome;
mod summary;
#[cfg(test)]
mod tests;
mod told;

use std::time::{Duration, Instant, SystemTime};

use proxy_api::{Batch, Token};
use proxy_model::{
    Backend, Capability, ChangeSet, Difference, FatalCause, IpFamily, Model, NodeState,
    ServicePortKey, SyncError, SyncReport,
};
use thiserror::Error;

pub use self::alternatives::{Alternatives, Wanting};
use self::{
    gaps::Gaps,
    outcome::Pending,
    summary::{Summary, Synced},
    told::Told,
};
pub use self::{
    mind::Mind,
    outcome::{Advance, Repair, Sync},
};
use proxy_backend::milliseconds;

use crate::cluster::Update;

/// How long a failed sync is put off at most.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// A backend that would do more is looked for again after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// While nothing is served yet, a backend that does more is tried this often before one that does
/// less serves what it can.
const PATIENCE: u32 = 3;

/// Until the state is brought up to date, the model remembers the name of every Service that an
/// event touched, also of those that are gone. More such events than this are not left waiting
/// while the cluster is not known or the backend fails.
const MOST_UNSETTLED: usize = 100_000;

/// State, and the backend that makes it true.
pub struct Pipeline {
    mind: Mind,
    backend: Box<dyn Backend>,
    alternatives: Option<Box<dyn Alternatives>>,
    /// They know that this backend has the state in force.
    announced: bool,
    /// The backend does not hold the state of the last update: the next sync is a whole one.
    behind: bool,
    /// Whether a sync ever succeeded.
    serving: bool,
    /// Why the last sync or repair failed, if it did.
    failure: Option<String>,
    /// Failed syncs in a row.
    failures: u32,
    /// Syncs that succeeded.
    revision: u64,
    /// Events that changed something since the state was brought up to date.
    unsettled: usize,
    /// How the state differs from that of the last sync. Means nothing while the backend is
    /// behind, which needs the whole.
    unsynced: ChangeSet,
    /// How long the state took since the last sync.
    settling: Duration,
    /// What the next successful sync brings into force.
    pending: Pending,
    told: Told,
    gaps: Gaps,
    demand: Demand,
    /// Whether there was no gap at the last advance; `None` before the first.
    sufficed: Option<bool>,
    /// When a backend that does more was looked for and none took over, while that is so.
    looked: Option<Instant>,
    /// What the last repair could not mend, as far as the log was told.
    problems: Vec<String>,
    summary: Summary,
}

/// What is expected of the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// To serve what it can.
    WhatItCan,
    /// To give way where another backend does all that Services need. Where none does, to serve
    /// what it can: no object of the cluster decides whether there is a proxy.
    Everything,
}

/// A sync that no retry can mend.
#[derive(Debug, Error)]
#[error("{reason}")]
pub struct Fatal {
    /// Whose matter it is.
    pub cause: FatalCause,
    /// What was attempted, on what, what stopped it, and what to do.
    pub reason: String,
}

impl Pipeline {
    /// A pipeline that has synced nothing yet.
    pub fn new(mind: impl Into<Mind>, backend: Box<dyn Backend>, demand: Demand) -> Self {
        let gaps = Gaps::new(backend.lacks());
        Self {
            mind: mind.into(),
            backend,
            alternatives: None,
            announced: false,
            behind: true,
            serving: false,
            failure: None,
            failures: 0,
            revision: 0,
            unsettled: 0,
            unsynced: ChangeSet::default(),
            settling: Duration::ZERO,
            pending: Pending::default(),
            told: Told::default(),
            gaps,
            demand,
            sufficed: None,
            looked: None,
            problems: Vec::new(),
            summary: Summary::default(),
        }
    }

    /// The same with backends that may take this one's place.
    pub fn with_alternatives(self, alternatives: Option<Box<dyn Alternatives>>) -> Self {
        Self {
            alternatives,
            ..self
        }
    }

    /// Folds updates. Nothing follows from them before [`Self::settle`].
    pub fn fold(&mut self, updates: Vec<Update>) {
        for update in updates {
            self.pending.events += 1;
            let kind = outcome::kind(&update.event);
            if self.mind.apply(update.event) {
                self.pending.note(kind, update.trigger);
                self.unsettled += 1;
            }
        }
        if self.behind && self.unsettled > MOST_UNSETTLED {
            // The next sync is a whole one and needs no change.
            self.bring_up_to_date();
        }
    }

    /// Takes what another brain said. Nothing follows from it before [`Self::settle`].
    pub fn replicate(&mut self, batch: Batch) {
        self.pending.note_batch(&batch);
        self.mind.replicate(batch);
    }

    /// Brings the state up to date with what was folded, and tells the log what is wrong with it.
    /// Returns when the cluster changed what is settled now and was not before.
    pub fn settle(&mut self) -> Vec<(IpFamily, SystemTime)> {
        self.bring_up_to_date();
        std::mem::take(&mut self.pending.unsettled_triggers)
    }

    fn bring_up_to_date(&mut self) {
        let started = Instant::now();
        self.unsettled = 0;
        let change = self.mind.update();
        log::news(self.told.diagnostics(&self.mind.state().diagnostics));
        log::news(self.gaps.take(self.mind.state(), &change.changes));
        if self.in_force() {
            self.unsynced = change;
        } else if !change.is_empty() {
            // Whoever missed a change gets everything: two of them in a row are not in order.
            self.behind = true;
        }
        self.settling += started.elapsed();
    }

    /// Brings what was settled into force. [`Advance::retry`] says when to call again if the
    /// backend must be tried again.
    pub fn advance(&mut self) -> Result<Advance, Fatal> {
        let started = Instant::now();
        let mut advance = self.pending.counted();
        let mut change = std::mem::take(&mut self.unsynced);
        let better = self.look_at_gaps();
        if self.behind || better.is_some() {
            change = self.mind.state().as_change_set();
        }
        let settling = std::mem::take(&mut self.settling);
        if change.is_empty() {
            // What the triggers stand for was in force already.
            self.pending.triggers.clear();
            return Ok(advance);
        }
        let result = match better {
            Some(better) => self.change_backend(better, &change),
            None => self.backend.sync(self.mind.state(), &change),
        };
        let result = self.go_on_with_the_next(result, &mut change);
        let took = settling + started.elapsed();
        advance.sync = Some(match result {
            Ok(report) => {
                self.behind = false;
                self.failure = None;
                self.failures = 0;
                self.revision += 1;
                if !std::mem::replace(&mut self.announced, true)
                    && let Some(alternatives) = &mut self.alternatives
                {
                    advance.chosen = alternatives.serves(self.backend.name());
                }
                self.look_at_lacks();
                self.log_sync(&change, report, took);
                Sync {
                    whole: change.whole,
                    took,
                    triggers: std::mem::take(&mut self.pending.triggers),
                    retry: None,
                }
            }
            Err(error) => Sync {
                whole: change.whole,
                took,
                triggers: Vec::new(),
                retry: Some(self.failed(error)?),
            },
        });
        Ok(advance)
    }

    /// Compares the kernel with the state, and mends what differs. `None` while a sync is
    /// still to be made: that reads the maps back itself.
    pub fn repair(&mut self) -> Result<Option<Repair>, Fatal> {
        if !self.in_force() {
            return Ok(None);
        }
        let started = Instant::now();
        match self.backend.repair(self.mind.state()) {
            Ok(report) => {
                let services = &self.mind.state().services;
                let wanted = |key: &_| services.contains_key(key);
                log::news(self.told.failures(report.failures, wanted));
                self.look_at_lacks();
                for problem in &report.problems {
                    if !self.problems.contains(problem) {
                        tracing::error!(reason = problem, "not repaired");
                    }
                }
                self.problems = report.problems;
                log::repaired(&report.repaired, report.writes, started.elapsed());
                Ok(Some(Repair {
                    differences: report.repaired,
                    retry: None,
                }))
            }
            Err(error) => Ok(Some(Repair {
                differences: Vec::new(),
                retry: Some(self.failed(error)?),
            })),
        }
    }

    /// Whether somebody else may have changed what the backend wrote: a repair is due.
    pub fn disturbed(&mut self) -> bool {
        self.in_force() && self.backend.disturbed()
    }

    /// Has the backend do what it owes besides the state.
    pub fn tend(&mut self) {
        if self.in_force() {
            self.backend.tend(self.mind.state());
        }
    }

    /// How the kernel differs from the state, without mending it.
    pub fn differences(&mut self) -> Result<Vec<Difference>, String> {
        if !self.in_force() {
            let reason = "the last sync failed, so the kernel is known to differ; see the log";
            return Err(reason.to_owned());
        }
        self.backend.differences(self.mind.state())
    }

    /// When to try again after `error`.
    fn failed(&mut self, error: SyncError) -> Result<Duration, Fatal> {
        match error {
            SyncError::Retry { reason, after } => {
                self.behind = true;
                let wait = put_off(after, self.failures);
                self.failures = self.failures.saturating_add(1);
                tracing::error!(reason, retry_in_ms = milliseconds(wait), "sync failed");
                self.failure = Some(reason);
                Ok(wait)
            }
            SyncError::Fatal { cause, reason } => Err(Fatal { cause, reason }),
        }
    }

    /// The cluster behind the state, to ask, where it is known.
    pub fn cluster(&self) -> Option<&Model> {
        self.mind.cluster()
    }

    /// The state that is, or shall be, in force.
    pub fn state(&self) -> &NodeState {
        self.mind.state()
    }

    /// The backend, to ask.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// How often the state in force changed.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether the state is in force, as far as is known.
    pub fn in_force(&self) -> bool {
        !self.behind && self.unsynced.is_empty()
    }

    /// Why it is not, if a sync or repair failed.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Which state of another brain the state is, if it is one.
    pub fn token(&self) -> Option<Token> {
        self.mind.token()
    }

    /// Service ports that are not programmed, and why.
    pub fn not_programmed(&self) -> impl Iterator<Item = (&ServicePortKey, &str)> {
        self.told.not_programmed()
    }

    /// How many Service ports miss each capability.
    pub fn gaps(&self) -> impl Iterator<Item = (Capability, usize)> {
        Capability::ALL
            .into_iter()
            .map(|capability| (capability, self.gaps.count(capability)))
    }

    /// Whether the backend does all that Service ports need, and that another one might do.
    pub fn suffices(&self) -> bool {
        self.gaps.suffice()
    }

    /// Events that were folded and not counted by an advance yet.
    pub fn waiting_events(&self) -> u64 {
        self.pending.events
    }

    fn log_sync(&mut self, change: &ChangeSet, report: SyncReport, took: Duration) {
        let services = &self.mind.state().services;
        let wanted = |key: &_| services.contains_key(key);
        log::news(self.told.failures(report.failures, wanted));
        // The first sync is told by the backend, which knows what it took over.
        if std::mem::replace(&mut self.serving, true) {
            let synced = Synced::of(change, report.writes);
            log::synced(&synced, change, services.len(), took);
            self.summary.add(synced);
        }
    }

    /// Tells the log what came into force since the last time, if anything did and it is time.
    pub fn summarise(&mut self) {
        if let Some(synced) = self.summary.due(Instant::now()) {
            log::summary(&synced, self.mind.state().services.len());
        }
    }

    /// Whether it is time to advance, although nothing changed, because a backend that does more may
    /// be had by now.
    pub fn looks_again(&self) -> bool {
        self.looked.is_some_and(|at| at.elapsed() >= LOOK_AGAIN)
    }

    /// Another backend, if Service ports need what this one lacks. Where none is to be had, this one
    /// serves what it can, and that is said.
    fn look_at_gaps(&mut self) -> Option<Box<dyn Backend>> {
        let now = self.suffices();
        let before = self.sufficed.replace(now);
        if self.demand == Demand::WhatItCan || (before == Some(now) && !self.looks_again()) {
            return None;
        }
        let name = self.backend.name();
        self.looked = None;
        if now {
            if before.is_some() {
                tracing::info!(backend = name, "backend suffices again");
            }
            return None;
        }
        let wanting = self.gaps.wanting(alternatives::needs(self.mind.state()));
        let text = format!(
            "{wanting}; it serves what it can, and no other backend can be used here; see \
             `proxy-agent check`"
        );
        let better = self
            .alternatives
            .as_mut()
            .and_then(|all| all.better(wanting));
        if better.is_none() {
            self.looked = Some(Instant::now());
            if before != Some(now) {
                tracing::warn!(backend = name, text, "backend no longer suffices");
            }
        }
        better
    }

    /// Puts `better` in the place of the backend once it has the state in force: never is there
    /// none. If that fails, the present one goes on.
    fn change_backend(
        &mut self,
        mut better: Box<dyn Backend>,
        change: &ChangeSet,
    ) -> Result<SyncReport, SyncError> {
        let state = self.mind.state();
        match better.sync(state, change) {
            Ok(report) => {
                self.replace_backend(better);
                Ok(report)
            }
            Err(error @ SyncError::Retry { .. }) if !self.serving && self.failures < PATIENCE => {
                self.sufficed = None;
                Err(error)
            }
            Err(error) => {
                tracing::error!(
                    backend = better.name(),
                    %error,
                    text = "the present one goes on with what it can",
                    "backend not changed"
                );
                self.looked = Some(Instant::now());
                self.backend.sync(state, change)
            }
        }
    }

    /// Where a backend can never serve on this host, the next one that can takes its place. The error
    /// that is left when there is none tells of all of them.
    fn go_on_with_the_next(
        &mut self,
        mut result: Result<SyncReport, SyncError>,
        change: &mut ChangeSet,
    ) -> Result<SyncReport, SyncError> {
        while let Err(SyncError::Fatal { cause, reason }) = result {
            let next = match &mut self.alternatives {
                Some(alternatives) => alternatives.instead(&reason),
                None => Err(reason),
            };
            let next = next.map_err(|reason| SyncError::Fatal { cause, reason })?;
            if !change.whole {
                *change = self.mind.state().as_change_set();
            }
            self.replace_backend(next);
            result = self.backend.sync(self.mind.state(), change);
        }
        result
    }

    /// The other one lets go of what it holds, so that it can be taken away.
    fn replace_backend(&mut self, backend: Box<dyn Backend>) {
        self.backend = backend;
        self.announced = false;
        self.looked = None;
        self.look_at_lacks();
        self.sufficed = Some(self.suffices());
    }

    /// What a backend lacks may change while it serves: with devices, or once it has tried.
    fn look_at_lacks(&mut self) {
        let lacks = self.backend.lacks();
        if !self.gaps.are_of(lacks) {
            log::news(self.gaps.change_backend(lacks, self.mind.state()));
        }
    }
}

/// How long to wait after a failed sync: twice as long each time, up to a limit.
fn put_off(after: Duration, failures_before: u32) -> Duration {
    after
        .saturating_mul(2_u32.saturating_pow(failures_before))
        .min(LONGEST_RETRY)
}
