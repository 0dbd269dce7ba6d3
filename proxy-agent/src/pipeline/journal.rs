//! What the log was told of the state, and what it must be told next. What it is told of one layer,
//! that layer knows.

use std::time::Instant;

use proxy_model::NodeState;

use super::{
    log,
    reported::Diagnostics,
    summary::{Summary, Synced},
};

/// Tells the log.
#[derive(Debug, Default)]
pub struct Journal {
    diagnostics: Diagnostics,
    summary: Summary,
}

impl Journal {
    /// `state` is up to date: what is wrong with the cluster's objects is told.
    pub fn settled(&mut self, state: &NodeState) {
        log::news(self.diagnostics.take(&state.diagnostics));
    }

    /// A layer that served before has taken a change.
    pub fn synced(&mut self, synced: Synced) {
        self.summary.add(synced);
    }

    /// Tells what came into force since the last time, if anything did and it is time.
    pub fn summarise(&mut self, state: &NodeState) {
        if let Some(synced) = self.summary.due(Instant::now()) {
            log::summary(&synced, state.services.len());
        }
    }
}
