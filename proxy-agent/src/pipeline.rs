//! The sole owner of the state: folds events into the model, recomputes what they touch, and
//! hands the change to the backend.

#[cfg(test)]
mod tests;
mod told;

use std::time::{Duration, Instant};

use proxy_model::{
    Backend, Change, ChangeSet, ClusterEvent, FatalCause, Model, SyncError, SyncReport,
};
use thiserror::Error;

use self::told::{News, Told};
use crate::logging::milliseconds;

/// How long a failed sync is put off at most.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// State, and the backend that makes it true.
pub struct Pipeline<B> {
    model: Model,
    backend: B,
    /// The backend does not hold the state of the last update: the next sync is a whole one.
    behind: bool,
    /// Whether a sync ever succeeded.
    serving: bool,
    /// Failed syncs in a row.
    failures: u32,
    told: Told,
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

impl<B: Backend> Pipeline<B> {
    /// A pipeline that has synced nothing yet.
    pub fn new(model: Model, backend: B) -> Self {
        Self {
            model,
            backend,
            behind: true,
            serving: false,
            failures: 0,
            told: Told::default(),
        }
    }

    /// Folds `events` and syncs what they changed. Returns when to call again, with no events, if
    /// the backend must be tried again.
    pub fn advance(&mut self, events: Vec<ClusterEvent>) -> Result<Option<Duration>, Fatal> {
        let started = Instant::now();
        for event in events {
            self.model.apply(event);
        }
        let mut change = self.model.update();
        log(self.told.diagnostics(&self.model.state().diagnostics));
        if self.behind {
            change = self.model.state().as_change_set();
        }
        if change.is_empty() {
            return Ok(None);
        }
        match self.backend.sync(self.model.state(), &change) {
            Ok(report) => {
                self.behind = false;
                self.failures = 0;
                self.log_sync(&change, report, started.elapsed());
                Ok(None)
            }
            Err(SyncError::Retry { reason, after }) => {
                self.behind = true;
                let wait = put_off(after, self.failures);
                self.failures = self.failures.saturating_add(1);
                tracing::error!(reason, retry_in_ms = milliseconds(wait), "sync failed");
                Ok(Some(wait))
            }
            Err(SyncError::Fatal { cause, reason }) => Err(Fatal { cause, reason }),
        }
    }

    fn log_sync(&mut self, change: &ChangeSet, report: SyncReport, took: Duration) {
        let services = &self.model.state().services;
        let wanted = |key: &_| services.contains_key(key);
        log(self.told.failures(report.failures, wanted));
        // The first sync is told by the backend, which knows what it took over.
        if std::mem::replace(&mut self.serving, true) {
            let deleted = change
                .changes
                .iter()
                .filter(|one| matches!(one, Change::Delete { .. }));
            let deleted = deleted.count();
            tracing::info!(
                upserted = change.changes.len() - deleted,
                deleted,
                writes = report.writes,
                services = services.len(),
                changed = %first_keys(change),
                duration_ms = milliseconds(took),
                "synced"
            );
        }
    }
}

/// How long to wait after a failed sync: twice as long each time, up to a limit.
fn put_off(after: Duration, failures_before: u32) -> Duration {
    after
        .saturating_mul(2_u32.saturating_pow(failures_before))
        .min(LONGEST_RETRY)
}

fn log(news: Vec<News>) {
    for one in news {
        match one {
            News::NotProgrammed(failure) => tracing::error!(
                service = %failure.key,
                reason = failure.reason,
                "service not programmed"
            ),
            News::Programmed(key) => tracing::info!(service = %key, "service programmed"),
            News::Diagnosed(new) => tracing::warn!(
                object = &*new.object,
                field = new.field,
                text = new.message,
                "diagnostic"
            ),
            News::Resolved(old) => tracing::info!(
                object = &*old.object,
                field = old.field,
                text = old.message,
                "diagnostic resolved"
            ),
        }
    }
}

/// Names what changed, the first few.
fn first_keys(change: &ChangeSet) -> String {
    const SHOWN: usize = 3;
    let mut names: Vec<String> = change
        .changes
        .iter()
        .take(SHOWN)
        .map(|change| change.key().to_string())
        .collect();
    if let Some(more) = change
        .changes
        .len()
        .checked_sub(SHOWN)
        .filter(|more| *more > 0)
    {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}
