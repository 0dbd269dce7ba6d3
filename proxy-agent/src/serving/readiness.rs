//! Whether this agent serves what the cluster says, in every layer that it chose, and if not, why: a
//! pure decision on what it was told. For whoever replaces one agent by the next on node after node,
//! and must not go on past one that does not serve.
//!
//! Stricter than health: that has patience, and does not ask for a layer that nobody needs. Nor does
//! the node matter here: an agent on a node that is drained serves.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::heart::Beat;

/// What was told so far.
#[derive(Debug)]
pub struct Readiness {
    /// Who tells what the cluster is.
    source: String,
    state: Mutex<State>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// The source has not told the whole cluster yet.
    Unknown,
    /// It has, and that is not in force everywhere: why.
    Behind(String),
    /// What is known is in force.
    InForce,
}

impl Readiness {
    /// Nothing was told; `source` is to tell it.
    pub fn new(source: String) -> Self {
        Self {
            source,
            state: Mutex::new(State::Unknown),
        }
    }

    /// The source has told the whole cluster.
    pub fn source_synced(&self) {
        let mut state = self.lock();
        if *state == State::Unknown {
            *state = State::Behind("the first state is not in force yet".to_owned());
        }
    }

    /// What is known is in force in every layer, or why it is not.
    pub fn layers(&self, behind: Option<String>) {
        let mut state = self.lock();
        if *state != State::Unknown {
            *state = behind.map_or(State::InForce, State::Behind);
        }
    }

    /// Whether it is ready; otherwise the reason, in one line. `beat` is what the owner of the state
    /// is at.
    pub fn answer(&self, beat: Beat, now: Instant) -> Result<(), String> {
        if beat.hangs(now) {
            return Err(format!("the agent hangs while {}", beat.doing));
        }
        let reason = match &*self.lock() {
            State::InForce => return Ok(()),
            State::Unknown => format!("{} has not answered yet", self.source),
            State::Behind(reason) => reason.clone(),
        };
        Err(reason.lines().collect::<Vec<_>>().join("; "))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment: a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heart::{Heart, LONGEST};

    fn told(readiness: &Readiness) -> String {
        let beat = Heart::default().last();
        let answer = readiness.answer(beat, beat.since);
        answer.map_or_else(|reason| reason, |()| "ready".to_owned())
    }

    #[test]
    fn ready_is_who_has_all_that_the_source_says_in_force_everywhere() {
        let readiness = Readiness::new("API server https://a".to_owned());
        let behind = || Some("layer one is behind: no memory\nat all".to_owned());
        assert_eq!(
            told(&readiness),
            "API server https://a has not answered yet"
        );
        // Before, what is in force is nobody's state.
        readiness.layers(None);
        assert_eq!(
            told(&readiness),
            "API server https://a has not answered yet"
        );
        readiness.source_synced();
        assert_eq!(told(&readiness), "the first state is not in force yet");
        readiness.layers(behind());
        assert_eq!(told(&readiness), "layer one is behind: no memory; at all");
        readiness.layers(None);
        assert_eq!(told(&readiness), "ready");
        // Told again after each loss of the source: what is known stays in force.
        readiness.source_synced();
        assert_eq!(told(&readiness), "ready");
        readiness.layers(behind());
        assert!(told(&readiness).starts_with("layer one"));
    }

    #[test]
    fn who_hangs_is_not_ready() {
        let readiness = Readiness::new("manifests".to_owned());
        readiness.source_synced();
        readiness.layers(None);
        let heart = Heart::default();
        heart.at("computing the state");
        let beat = heart.last();
        let reason = readiness.answer(beat, beat.since + LONGEST).unwrap_err();
        assert_eq!(reason, "the agent hangs while computing the state");
    }
}
