//! Which backend serves: keeps what Service ports need and the backend lacks, decides when another one
//! takes its place, and tells the log. How others are chosen and opened, [`Alternatives`] knows.

use std::time::{Duration, Instant};

use proxy_model::{Backend, Capability, Change, NodeState};

use super::{
    alternatives::{self, Alternatives, NoneLeft},
    gaps::Gaps,
    log,
};
use crate::backend::choice::Choice;

/// A backend that would do more is looked for again after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// What is expected of the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// To serve what it can.
    WhatItCan,
    /// To give way where another backend does all that Services need. Where none does, to serve
    /// what it can: no object of the cluster decides whether there is a proxy.
    Everything,
}

/// Whether the backend in use suffices, and what may take its place.
pub struct Changeover {
    demand: Demand,
    gaps: Gaps,
    alternatives: Option<Box<dyn Alternatives>>,
    /// They know that this backend has the state in force.
    announced: bool,
    /// Whether there was no gap at the last advance; `None` before the first.
    sufficed: Option<bool>,
    /// When a backend that does more was looked for and none took over, while that is so.
    looked: Option<Instant>,
}

impl Changeover {
    /// Of a backend that lacks `lacks`, with none that may take its place.
    pub fn new(demand: Demand, lacks: &[Capability]) -> Self {
        Self {
            demand,
            gaps: Gaps::new(lacks),
            alternatives: None,
            announced: false,
            sufficed: None,
            looked: None,
        }
    }

    /// What may take its place.
    pub fn set_alternatives(&mut self, alternatives: Option<Box<dyn Alternatives>>) {
        self.alternatives = alternatives;
    }

    /// The state has changed: what opens and closes gaps is told.
    pub fn changed(&mut self, state: &NodeState, changes: &[Change]) {
        log::news(self.gaps.take(state, changes));
    }

    /// What a backend lacks may change while it serves: with devices, or once it has tried.
    pub fn look_at_lacks(&mut self, lacks: &[Capability], state: &NodeState) {
        if !self.gaps.are_of(lacks) {
            log::news(self.gaps.change_backend(lacks, state));
        }
    }

    /// How many Service ports miss `capability`.
    pub fn count(&self, capability: Capability) -> usize {
        self.gaps.count(capability)
    }

    /// Whether the backend does all that Service ports need, and that another one might do.
    pub fn suffices(&self) -> bool {
        self.gaps.suffice()
    }

    /// Whether it is time to look for a backend that does more, although nothing changed.
    pub fn looks_again(&self) -> bool {
        self.looked.is_some_and(|at| at.elapsed() >= LOOK_AGAIN)
    }

    /// Another backend, opened, if Service ports need what the one called `name` lacks. Where none is
    /// to be had, that one serves what it can, and that is said.
    pub fn better(&mut self, name: &str, state: &NodeState) -> Option<Box<dyn Backend>> {
        let now = self.suffices();
        let before = self.sufficed.replace(now);
        if self.demand == Demand::WhatItCan || (before == Some(now) && !self.looks_again()) {
            return None;
        }
        self.looked = None;
        if now {
            if before.is_some() {
                tracing::info!(backend = name, "backend suffices again");
            }
            return None;
        }
        let wanting = self.gaps.wanting(alternatives::needs(state));
        let text = format!(
            "{wanting}; it serves what it can, because no other backend can be used here; see \
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

    /// A better one could not take over yet: it is looked for with the next advance.
    pub fn try_again(&mut self) {
        self.sufficed = None;
    }

    /// A better one could not take over: it is looked for after a while.
    pub fn put_off(&mut self) {
        self.looked = Some(Instant::now());
    }

    /// As if it had been looked for as long ago as it takes to look again.
    #[cfg(test)]
    pub fn looked_long_ago(&mut self) {
        self.looked = Instant::now().checked_sub(LOOK_AGAIN);
    }

    /// The backend in use can never serve on this host, for `reason`: the next one that can, opened.
    pub fn instead(&mut self, reason: String) -> Result<Box<dyn Backend>, NoneLeft> {
        match &mut self.alternatives {
            Some(alternatives) => alternatives.instead(&reason),
            None => Err(NoneLeft::Only { reason }),
        }
    }

    /// Another backend, which lacks `lacks`, is in use.
    pub fn replaced(&mut self, lacks: &[Capability], state: &NodeState) {
        self.announced = false;
        self.looked = None;
        self.look_at_lacks(lacks, state);
        self.sufficed = Some(self.suffices());
    }

    /// The backend called `name` has the state in force. Returns the choice if it is another one than
    /// before.
    pub fn in_force(&mut self, name: &str) -> Option<Choice> {
        if std::mem::replace(&mut self.announced, true) {
            return None;
        }
        let alternatives = self.alternatives.as_mut()?;
        alternatives.retire_others(name);
        alternatives.chosen(name)
    }
}
