//! The sole owner of the state: folds events into the desired state, settles what follows from them, and
//! hands the change to the backend. Says what came of it; does not know who counts it, nor who
//! else wants the state.

mod alternatives;
mod changeover;
mod desired;
#[cfg(test)]
pub(crate) mod fake;
mod gaps;
mod journal;
mod log;
mod outcome;
mod reported;
mod summary;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant, SystemTime};

use proxy_api::{Batch, Token};
use proxy_backend::milliseconds;
use proxy_model::{
    Attempts, Backend, Capability, ChangeSet, CompareError, Difference, IpFamily, Model, NodeState,
    ServicePortKey, SyncError, SyncReport, Syncing,
};

pub use self::{
    alternatives::{Alternatives, NoneLeft, Wanting},
    changeover::Demand,
    desired::Desired,
    outcome::{Advance, Repair, SyncOutcome},
};
use self::{changeover::Changeover, journal::Journal, outcome::Pending};
use crate::cluster::Update;
pub use proxy_model::Fatal;

/// While nothing is served yet, a backend that does more is tried this often before one that does
/// less serves what it can.
const PATIENCE: u32 = 3;

/// Until the state is brought up to date, the model remembers the name of every Service that an
/// event touched, also of those that are gone. More such events than this are not left waiting
/// while the cluster is not known or the backend fails.
const MOST_UNSETTLED: usize = 100_000;

/// State, and the backend that makes it true.
pub struct Pipeline {
    desired: Desired,
    syncing: Syncing<Box<dyn Backend>>,
    attempts: Attempts,
    changeover: Changeover,
    journal: Journal,
    /// Syncs that succeeded.
    revision: u64,
    /// Events that changed something since the state was brought up to date.
    unsettled: usize,
    /// How long the state took since the last sync.
    settling: Duration,
    /// What the next successful sync brings into force.
    pending: Pending,
}

impl Pipeline {
    /// A pipeline that has synced nothing yet.
    pub fn new(desired: impl Into<Desired>, backend: Box<dyn Backend>, demand: Demand) -> Self {
        Self {
            desired: desired.into(),
            changeover: Changeover::new(demand, backend.lacks()),
            syncing: Syncing::new(backend),
            attempts: Attempts::default(),
            journal: Journal::default(),
            revision: 0,
            unsettled: 0,
            settling: Duration::ZERO,
            pending: Pending::default(),
        }
    }

    /// The same with backends that may take this one's place.
    pub fn with_alternatives(mut self, alternatives: Option<Box<dyn Alternatives>>) -> Self {
        self.changeover.set_alternatives(alternatives);
        self
    }

    /// Folds updates. Nothing follows from them before [`Self::settle`].
    pub fn fold(&mut self, updates: Vec<Update>) {
        for update in updates {
            self.pending.events += 1;
            let kind = outcome::kind(&update.event);
            if self.desired.apply(update.event) {
                self.pending.note(kind, update.trigger);
                self.unsettled += 1;
            }
        }
        if self.syncing.is_behind() && self.unsettled > MOST_UNSETTLED {
            // The next sync is a whole one and needs no change.
            self.bring_up_to_date();
        }
    }

    /// Takes what another brain said. Nothing follows from it before [`Self::settle`].
    pub fn replicate(&mut self, batch: Batch) {
        self.pending.note_batch(&batch);
        self.desired.replicate(batch);
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
        let change = self.desired.update();
        self.journal.settled(self.desired.state());
        self.changeover
            .changed(self.desired.state(), &change.changes);
        self.syncing.changed(change);
        self.settling += started.elapsed();
    }

    /// Brings what was settled into force. [`Advance::retry`] says when to call again if the
    /// backend must be tried again.
    pub fn advance(&mut self) -> Result<Advance, Fatal> {
        let started = Instant::now();
        let mut advance = self.pending.counted();
        let state = self.desired.state();
        let mut change = self.syncing.due(state);
        let better = self.changeover.better(self.syncing.backend().name(), state);
        if better.is_some() {
            change = state.as_change_set();
        }
        let settling = std::mem::take(&mut self.settling);
        if change.is_empty() {
            // What the triggers stand for was in force already.
            self.pending.triggers.clear();
            return Ok(advance);
        }
        let result = match better {
            Some(better) => self.change_backend(better, &change),
            None => self.syncing.sync(state, &change),
        };
        let result = self.go_on_with_the_next(result, &mut change);
        let took = settling + started.elapsed();
        let mut sync = SyncOutcome {
            whole: change.whole,
            took,
            triggers: Vec::new(),
            retry: None,
        };
        match self.took(result)? {
            Ok(report) => {
                self.revision += 1;
                let state = self.desired.state();
                let backend = self.syncing.backend();
                advance.chosen = self.changeover.in_force(backend.name());
                self.changeover.look_at_lacks(backend.lacks(), state);
                self.journal.synced(state, &change, report, took);
                sync.triggers = std::mem::take(&mut self.pending.triggers);
            }
            Err(wait) => sync.retry = Some(wait),
        }
        advance.sync = Some(sync);
        Ok(advance)
    }

    /// Compares the kernel with the state, and mends what differs. `None` while a sync is
    /// still to be made: that reads the maps back itself.
    pub fn repair(&mut self) -> Result<Option<Repair>, Fatal> {
        let started = Instant::now();
        let Some(result) = self.syncing.repair(self.desired.state()) else {
            return Ok(None);
        };
        let result = result.map_err(|error| match error {
            // The sync that is due now says so again, and then another backend may take its place.
            SyncError::Fatal { reason, .. } => SyncError::Retry {
                reason,
                after: Duration::ZERO,
            },
            retry @ SyncError::Retry { .. } => retry,
        });
        Ok(Some(match self.took(result)? {
            Ok(report) => {
                let state = self.desired.state();
                self.changeover
                    .look_at_lacks(self.syncing.backend().lacks(), state);
                let took = started.elapsed();
                Repair {
                    differences: self.journal.repaired(state, report, took),
                    retry: None,
                }
            }
            Err(wait) => Repair {
                differences: Vec::new(),
                retry: Some(wait),
            },
        }))
    }

    /// Takes what became of an attempt; the inner error is when to try again.
    fn took<R>(&mut self, result: Result<R, SyncError>) -> Result<Result<R, Duration>, Fatal> {
        let took = self.attempts.took(result)?;
        if let Err(wait) = &took {
            let reason = self.attempts.failure();
            tracing::error!(reason, retry_in_ms = milliseconds(*wait), "sync failed");
        }
        Ok(took)
    }

    /// Whether somebody else may have changed what the backend wrote: a repair is due.
    pub fn disturbed(&mut self) -> bool {
        self.syncing.disturbed()
    }

    /// Has the backend do what it owes besides the state.
    pub fn tend(&mut self) {
        self.syncing.tend(self.desired.state());
    }

    /// How the kernel differs from the state, without mending it.
    pub fn differences(&mut self) -> Result<Vec<Difference>, CompareError> {
        self.syncing.differences(self.desired.state())
    }

    /// The cluster behind the state, to ask, where it is known.
    pub fn cluster(&self) -> Option<&Model> {
        self.desired.cluster()
    }

    /// The state that is, or shall be, in force.
    pub fn state(&self) -> &NodeState {
        self.desired.state()
    }

    /// The backend, to ask.
    pub fn backend(&self) -> &dyn Backend {
        &**self.syncing.backend()
    }

    /// How often the state in force changed.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether the state is in force, as far as is known.
    pub fn in_force(&self) -> bool {
        self.syncing.in_force()
    }

    /// Why it is not, if a sync or repair failed.
    pub fn failure(&self) -> Option<&str> {
        self.attempts.failure()
    }

    /// Which state of another brain the state is, if it is one.
    pub fn token(&self) -> Option<Token> {
        self.desired.token()
    }

    /// Service ports that are not programmed, and why.
    pub fn not_programmed(&self) -> impl Iterator<Item = (&ServicePortKey, &str)> {
        self.journal.not_programmed()
    }

    /// How many Service ports miss each capability.
    pub fn gaps(&self) -> impl Iterator<Item = (Capability, usize)> {
        Capability::ALL
            .into_iter()
            .map(|capability| (capability, self.changeover.count(capability)))
    }

    /// Whether the backend does all that Service ports need, and that another one might do.
    pub fn suffices(&self) -> bool {
        self.changeover.suffices()
    }

    /// Events that were folded and not counted by an advance yet.
    pub fn waiting_events(&self) -> u64 {
        self.pending.events
    }

    /// Tells the log what came into force since the last time, if anything did and it is time.
    pub fn summarise(&mut self) {
        self.journal.summarise(self.desired.state());
    }

    /// Whether it is time to advance, although nothing changed, because a backend that does more may
    /// be had by now.
    pub fn looks_again(&self) -> bool {
        self.changeover.looks_again()
    }

    /// Puts `better` in the place of the backend once it has the state in force: the node is never
    /// without a dataplane. If that fails, the present one goes on.
    fn change_backend(
        &mut self,
        mut better: Box<dyn Backend>,
        change: &ChangeSet,
    ) -> Result<SyncReport, SyncError> {
        let state = self.desired.state();
        match better.sync(state, change) {
            Ok(report) => {
                self.replace_backend(better, true);
                Ok(report)
            }
            Err(error @ SyncError::Retry { .. })
                if !self.journal.is_serving() && self.attempts.failures() < PATIENCE =>
            {
                self.changeover.try_again();
                Err(error)
            }
            Err(error) => {
                tracing::error!(
                    backend = better.name(),
                    %error,
                    text = "the present one goes on serving what it can",
                    "backend not changed"
                );
                self.changeover.put_off();
                self.syncing.sync(state, change)
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
            let next = self.changeover.instead(reason);
            let next = next.map_err(|none| SyncError::Fatal {
                cause,
                reason: none.to_string(),
            })?;
            if !change.whole {
                *change = self.desired.state().as_change_set();
            }
            self.replace_backend(next, false);
            result = self.syncing.sync(self.desired.state(), change);
        }
        result
    }

    /// The other one lets go of what it holds, so that it can be taken away. `holds`: the new one has
    /// the state in force.
    fn replace_backend(&mut self, backend: Box<dyn Backend>, holds: bool) {
        let state = self.desired.state();
        self.changeover.replaced(backend.lacks(), state);
        drop(self.syncing.replace(backend, holds));
    }
}
