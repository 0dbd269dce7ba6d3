//! The sole owner of the state: folds events into the desired state, settles what follows from
//! them, and hands the change to every layer of the dataplane. Says what came of it; does not know
//! who counts it, nor who else wants the state.

mod alternatives;
mod desired;
#[cfg(test)]
pub(crate) mod fake;
mod gaps;
mod journal;
mod layer;
mod layers;
mod log;
mod outcome;
mod reported;
mod summary;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant, SystemTime};

use proxy_api::{Batch, Token};
use proxy_model::{Backend, Capability, CompareError, Difference, IpFamily, Model, NodeState};

pub use self::{
    alternatives::{Alternatives, Instead, NoneLeft},
    desired::Desired,
    layer::Layer,
    outcome::{Advance, Repair, SyncOutcome},
};
use self::{
    gaps::Gaps,
    journal::Journal,
    layer::Advanced,
    layers::Layers,
    outcome::{Pending, Tally},
};
use crate::{backend::choice::Choice, cluster::Update};
pub use proxy_model::Fatal;

/// Until the state is brought up to date, the model remembers the name of every Service that an
/// event touched, also of those that are gone. More such events than this are not left waiting
/// while the cluster is not known or the backend fails.
const MOST_UNSETTLED: usize = 100_000;

/// State, and the layers that make it true.
pub struct Pipeline {
    desired: Desired,
    layers: Layers,
    gaps: Gaps,
    alternatives: Option<Box<dyn Alternatives>>,
    /// Whoever removes what others left knows that these layers serve.
    retired_others: bool,
    journal: Journal,
    /// How often the state came into force in every layer.
    revision: u64,
    /// Events that changed something since the state was brought up to date.
    unsettled: usize,
    /// How long the state took since the last advance that had something to do.
    settling: Duration,
    /// What the next successful sync brings into force.
    pending: Pending,
}

/// Which layers are compared with the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All that hold it.
    All,
    /// Those of them that somebody else may have changed.
    Disturbed,
}

impl Pipeline {
    /// A pipeline that has synced nothing yet, with these layers: the one that decides first comes
    /// first.
    pub fn new(desired: impl Into<Desired>, layers: Vec<Box<dyn Backend>>) -> Self {
        let layers = Layers::new(layers.into_iter().map(Layer::new).collect());
        Self {
            desired: desired.into(),
            gaps: Gaps::new(&layers.lacks()),
            layers,
            alternatives: None,
            retired_others: false,
            journal: Journal::default(),
            revision: 0,
            unsettled: 0,
            settling: Duration::ZERO,
            pending: Pending::default(),
        }
    }

    /// The same with what may take the place of a layer.
    pub fn with_alternatives(mut self, alternatives: Option<Box<dyn Alternatives>>) -> Self {
        self.alternatives = alternatives;
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
        if self.layers.are_behind() && self.unsettled > MOST_UNSETTLED {
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
        let state = self.desired.state();
        self.journal.settled(state);
        log::news(self.gaps.take(state, &change.changes));
        self.layers.changed(&change);
        self.settling += started.elapsed();
    }

    /// Brings what was settled into force: in every layer but those that wait after a failure.
    /// [`Self::due`] says when to call again although nothing happened.
    pub fn advance(&mut self, now: Instant) -> Result<Advance, Fatal> {
        let started = Instant::now();
        let mut advance = self.pending.counted();
        let mut tally = Tally::default();
        // From the bottom up: what a layer passes on meets one that knows it already.
        for index in (0..self.layers.len()).rev() {
            self.advance_layer(index, now, &mut advance, &mut tally)?;
        }
        self.look_at_lacks();
        if let Some(synced) = tally.synced {
            self.journal.synced(synced);
        }
        if self.layers.all_serve()
            && !std::mem::replace(&mut self.retired_others, true)
            && let Some(alternatives) = &mut self.alternatives
        {
            alternatives.retire_all_but(&self.layers.names());
        }
        let took = std::mem::take(&mut self.settling) + started.elapsed();
        if self.layers.in_force() {
            // Without a sync, what the triggers stand for was in force already.
            let triggers = std::mem::take(&mut self.pending.triggers);
            if tally.any {
                self.revision += 1;
                advance.sync = Some(SyncOutcome {
                    whole: tally.whole,
                    took,
                    triggers,
                });
            }
        }
        Ok(advance)
    }

    /// Brings the state into force in one layer. One that can never serve on this host gives way to
    /// the next backend that can, or goes.
    fn advance_layer(
        &mut self,
        index: usize,
        now: Instant,
        advance: &mut Advance,
        tally: &mut Tally,
    ) -> Result<(), Fatal> {
        loop {
            match self.layers.advance(index, self.desired.state(), now) {
                Advanced::Not => return Ok(()),
                Advanced::Synced {
                    whole,
                    synced,
                    first,
                } => {
                    tally.add(whole, synced, first);
                    return Ok(());
                }
                Advanced::Failed => {
                    let failed = self.layers.names()[index];
                    advance.failed.push(failed);
                    return Ok(());
                }
                Advanced::Fatal(fatal) => {
                    let (gone, choice) = self.replace(index, fatal)?;
                    advance.chosen = Some(choice);
                    if gone {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Puts the next backend in the place of a layer that can never serve. Returns whether there is
    /// none, so that the others go on without it.
    fn replace(&mut self, index: usize, fatal: Fatal) -> Result<(bool, Choice), Fatal> {
        let Some(alternatives) = &mut self.alternatives else {
            return Err(fatal);
        };
        let Fatal { cause, reason } = fatal;
        let instead = alternatives
            .instead(self.layers.names()[index], &reason)
            .map_err(|none| Fatal {
                cause,
                reason: none.to_string(),
            })?;
        let gone = instead.backend.is_none();
        self.layers.replace(index, instead.backend.map(Layer::new));
        self.retired_others = false;
        Ok((gone, instead.choice))
    }

    /// What is lacking may change with a layer that begins to serve, or finds out.
    fn look_at_lacks(&mut self) {
        let lacks = self.layers.lacks();
        log::news(self.gaps.change_lacks(&lacks, self.desired.state()));
    }

    /// Compares the kernel with the state, and mends what differs. A layer that has a sync to make
    /// is left out: that reads back what is there itself. `None` if all are.
    pub fn repair(&mut self, which: Which, now: Instant) -> Option<Repair> {
        let state = self.desired.state();
        let mut repair = Repair::default();
        let mut any = false;
        for layer in self.layers.iter_mut() {
            if which == Which::Disturbed && !layer.disturbed() {
                continue;
            }
            match layer.repair(state, now) {
                None => continue,
                Some(Ok(differences)) => {
                    repair.differences.push((layer.name(), differences));
                    if !layer.in_force() {
                        repair.failed.push(layer.name());
                    }
                }
                Some(Err(())) => repair.failed.push(layer.name()),
            }
            any = true;
        }
        self.look_at_lacks();
        any.then_some(repair)
    }

    /// When to advance although nothing happened: a layer that failed is to be tried again.
    pub fn due(&self) -> Option<Instant> {
        self.layers.due()
    }

    /// Whoever waits after a failure waits no longer: somebody may have removed its cause.
    pub fn hurry(&mut self, now: Instant) {
        for layer in self.layers.iter_mut() {
            layer.hurry(now);
        }
    }

    /// Has the backends do what they owe besides the state. One may find out what it can do.
    pub fn tend(&mut self) {
        for layer in self.layers.iter_mut() {
            layer.tend(self.desired.state());
        }
        self.look_at_lacks();
    }

    /// How the kernel differs from the state, by layer, without mending it.
    pub fn differences(&mut self) -> Vec<(&'static str, Result<Vec<Difference>, CompareError>)> {
        let state = self.desired.state();
        let all = self.layers.iter_mut();
        all.map(|layer| (layer.name(), layer.differences(state)))
            .collect()
    }

    /// The cluster behind the state, to ask, where it is known.
    pub fn cluster(&self) -> Option<&Model> {
        self.desired.cluster()
    }

    /// The state that is, or shall be, in force.
    pub fn state(&self) -> &NodeState {
        self.desired.state()
    }

    /// The layers, the one that decides first first, to ask.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> {
        self.layers.iter()
    }

    /// What none of the layers in force can do.
    pub fn lacks(&self) -> Vec<Capability> {
        self.layers.lacks()
    }

    /// How often the state came into force in every layer.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether the state is in force in every layer, as far as is known.
    pub fn in_force(&self) -> bool {
        self.layers.in_force()
    }

    /// Whether it is in every layer that can do `capability`.
    pub fn in_force_for(&self, capability: Capability) -> bool {
        self.layers.in_force_for(capability)
    }

    /// Which state of another brain the state is, if it is one.
    pub fn token(&self) -> Option<Token> {
        self.desired.token()
    }

    /// How many Service ports miss each capability.
    pub fn gaps(&self) -> impl Iterator<Item = (Capability, usize)> {
        let all = Capability::ALL.into_iter();
        all.map(|capability| (capability, self.gaps.count(capability)))
    }

    /// Whether the dataplane does all that Service ports need.
    pub fn suffices(&self) -> bool {
        self.gaps.suffice()
    }

    /// Events that were folded and not counted by an advance yet.
    pub fn waiting_events(&self) -> u64 {
        self.pending.events
    }

    /// Tells the log what came into force since the last time, if anything did and it is time. Not
    /// while a layer does not have it.
    pub fn summarise(&mut self) {
        if self.layers.in_force() {
            self.journal.summarise(self.desired.state());
        }
    }
}
