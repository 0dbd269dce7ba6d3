//! Whether the brain can be heard, and since when it cannot. Told once per reason, until it can.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use jiff::Timestamp;

use crate::cluster::Stale;

/// Reasons that are told of one loss.
const REASONS: usize = 16;

/// What is known of the brain's reachability.
#[derive(Debug)]
pub struct Contact {
    /// For the log.
    brain: String,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// It answered once.
    ever: bool,
    lost: Option<Lost>,
    losses: u64,
    /// It was told that it says nothing.
    quiet: bool,
}

#[derive(Debug)]
struct Lost {
    stale: Stale,
    /// The same moment by a clock that nobody sets.
    at: Instant,
    /// Reasons that the log has.
    told: BTreeSet<String>,
}

impl Contact {
    /// Nothing was tried yet.
    pub fn new(brain: String) -> Self {
        Self {
            brain,
            known: Mutex::default(),
        }
    }

    /// It can be heard.
    pub(super) fn found(&self) {
        let mut known = self.known();
        let before = known.lost.take();
        known.quiet = false;
        let first = !std::mem::replace(&mut known.ever, true);
        match before {
            Some(lost) => {
                let away = lost.at.elapsed().as_secs();
                tracing::info!(brain = self.brain, away_s = away, "brain connected");
            }
            None if first => tracing::info!(brain = self.brain, "brain connected"),
            None => {}
        }
    }

    /// It answers, and has not said anything yet: it may not know its cluster. Good to know where
    /// it was lost; otherwise its first word is awaited.
    pub(super) fn silent(&self) {
        if let Some(lost) = &mut self.known().lost {
            "it answers, but has not sent its state yet".clone_into(&mut lost.stale.reason);
        }
    }

    /// It has answered long ago, and not told a whole state since.
    pub(super) fn quiet(&self) {
        if !std::mem::replace(&mut self.known().quiet, true) {
            let text = "it may not know its cluster yet: see its log; what is in force stays, and \
                        nothing new comes into force";
            tracing::warn!(brain = self.brain, text, "brain sends nothing");
        }
    }

    /// It cannot be heard.
    pub(super) fn lost(&self, reason: &str) {
        match self.note(reason) {
            None => {}
            Some(true) => {
                let text = "the last state stays in force, and nothing new comes into force";
                tracing::warn!(brain = self.brain, reason, text, "brain lost");
            }
            Some(false) => {
                let text = "what an earlier agent left in the kernel stays until the brain sends \
                            its state";
                tracing::warn!(brain = self.brain, reason, text, "brain not reached");
            }
        }
    }

    /// What it says is not for this node.
    pub(super) fn refused(&self, reason: &str) {
        if self.note(reason).is_some() {
            let text = "what is in force stays, and nothing new comes into force";
            tracing::error!(brain = self.brain, reason, text, "brain refused");
        }
    }

    /// Takes note of why it is of no use. Returns whether it ever was, unless that is known.
    fn note(&self, reason: &str) -> Option<bool> {
        let mut known = self.known();
        let Known {
            ever, lost, losses, ..
        } = &mut *known;
        let lost = lost.get_or_insert_with(|| {
            *losses += 1;
            Lost {
                stale: Stale {
                    since: Timestamp::now(),
                    reason: String::new(),
                },
                at: Instant::now(),
                told: BTreeSet::new(),
            }
        });
        reason.clone_into(&mut lost.stale.reason);
        // What it says is part of it: it could go on for ever.
        let is_new = lost.told.len() < REASONS && lost.told.insert(reason.to_owned());
        is_new.then_some(*ever)
    }

    /// Since when it cannot be heard, and why.
    pub fn stale(&self) -> Option<Stale> {
        let known = self.known();
        known.lost.as_ref().map(|lost| lost.stale.clone())
    }

    /// Whether it can be heard, and what it said last is as new as can be.
    pub fn is_connected(&self) -> bool {
        let known = self.known();
        known.ever && known.lost.is_none()
    }

    /// For how long it cannot be heard; zero while it can.
    pub fn stale_for(&self) -> Duration {
        let known = self.known();
        known
            .lost
            .as_ref()
            .map_or(Duration::ZERO, |lost| lost.at.elapsed())
    }

    /// How often it was lost, counting once what has several reasons.
    pub fn losses(&self) -> u64 {
        self.known().losses
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Each change leaves something whole: a panic elsewhere leaves nothing half done.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_once_until_the_brain_is_heard() {
        let contact = Contact::new("unix:///brain".to_owned());
        assert_eq!(contact.note("a"), Some(false));
        // It takes the call, and breaks it off.
        contact.silent();
        assert_eq!(contact.note("a"), None);
        assert_eq!(contact.stale().unwrap().reason, "a");
        assert_eq!(contact.note("b"), Some(false));
        contact.found();
        assert_eq!(contact.note("a"), Some(true));
        assert_eq!(contact.losses(), 2);
        for number in 0..100 {
            contact.note(&number.to_string());
        }
        assert_eq!(contact.note("another"), None, "the log has heard enough");
        assert_eq!(contact.stale().unwrap().reason, "another");
    }
}
