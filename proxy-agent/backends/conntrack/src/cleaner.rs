//! When to clean, over the life of a backend: nothing to do for changes that make no flow stale,
//! only what changed for those that do, and all after a clean that failed.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    time::{Duration, Instant},
};

use proxy_backend::{ConntrackObserver, Retry};
use proxy_model::{Change, ChangeSet, Figure, FigureKind, IpFamily, NodeState};

use super::{Cleaned, ConntrackError, Expected, clean, gone, needs_cleaning};

/// Cleans after syncs. A backend has one, and tells it of every sync that succeeded.
///
/// It holds the state of the last one, which shares all that did not change since.
#[derive(Debug, Default)]
pub struct Cleaner {
    before: NodeState,
    /// Frontends that went, and whose flows were not removed yet.
    owed: BTreeSet<SocketAddr>,
    /// A clean failed.
    failed: bool,
    retry: Retry,
    deleted: [usize; 2],
    cleans: usize,
    spent: Duration,
    observer: ConntrackObserver,
}

impl Cleaner {
    /// One that knows of no frontend yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells `observer` of each clean from now on.
    pub fn observed_by(&mut self, observer: ConntrackObserver) {
        self.observer = observer;
    }

    /// Adds UDP frontends that an earlier run served and that nobody may serve now, as a backend
    /// finds them that adopts its rules. What is served by the next state counts as served.
    pub fn owe(&mut self, frontends: impl IntoIterator<Item = SocketAddr>) {
        self.owed.extend(frontends);
    }

    /// To be called when `now` is in force, with what the backend was told to change. Removes the
    /// flows that became stale; `None` if none can have.
    ///
    /// After an error, the next clean looks at all flows, whatever changed: [`Cleaner::tend`] makes
    /// up for it if no change does.
    pub fn after_sync(
        &mut self,
        now: &NodeState,
        change: &ChangeSet,
    ) -> Result<Option<Cleaned>, ConntrackError> {
        let Some(expected) = self.expected(now, change) else {
            return Ok(None);
        };
        self.clean(&expected).map(Some)
    }

    /// To be called every now and then while the state of the last sync is in force: makes up for a
    /// clean that failed, later each time that it fails again. `None` if there is nothing to do.
    pub fn tend(&mut self, now: Instant) -> Result<Option<Cleaned>, ConntrackError> {
        let Some(expected) = self.missed(now) else {
            return Ok(None);
        };
        self.clean(&expected).map(Some)
    }

    fn clean(&mut self, expected: &Expected) -> Result<Cleaned, ConntrackError> {
        let began = Instant::now();
        let cleaned = clean(expected);
        self.spent += began.elapsed();
        self.done(cleaned, Instant::now())
    }

    /// What to clean by now; `None` if nothing was missed, or it is not time to try again.
    pub(super) fn missed(&self, now: Instant) -> Option<Expected> {
        let owed = self.owed.iter().copied();
        (self.failed && self.retry.is_due(now)).then(|| Expected::of_all(&self.before, owed))
    }

    /// What to clean by; `None` if there is nothing to clean.
    pub(super) fn expected(&mut self, now: &NodeState, change: &ChangeSet) -> Option<Expected> {
        let before = std::mem::replace(&mut self.before, now.clone());
        let needed = needs_cleaning(&before, now, change);
        // What was missed is made up for when it is time for that.
        if !needed && (self.failed || self.owed.is_empty()) {
            return None;
        }
        let behind = self.failed || !self.owed.is_empty();
        self.owed.extend(gone(&before, now, change));
        let owed = self.owed.iter().copied();
        let only_services = !change.whole && !change.node && !behind;
        Some(if only_services {
            Expected::of(now, change.changes.iter().map(Change::key), owed)
        } else {
            Expected::of_all(now, owed)
        })
    }

    /// Keeps what became of a clean.
    pub(super) fn done(
        &mut self,
        cleaned: Result<Cleaned, ConntrackError>,
        now: Instant,
    ) -> Result<Cleaned, ConntrackError> {
        self.cleans += 1;
        self.failed = cleaned.is_err();
        self.retry.tried(cleaned.is_ok(), now);
        let cleaned = cleaned?;
        self.owed.clear();
        self.deleted[0] += cleaned.deleted_v4;
        self.deleted[1] += cleaned.deleted_v6;
        for (family, deleted, took) in [
            (IpFamily::V4, cleaned.deleted_v4, cleaned.took_v4),
            (IpFamily::V6, cleaned.deleted_v6, cleaned.took_v6),
        ] {
            if let Some(took) = took {
                self.observer.cleaned(family, deleted, took);
            }
        }
        Ok(cleaned)
    }

    /// What kube-proxy counts under `conntrack_reconciler_…`, with the time as a sum and a number
    /// of times.
    pub fn figures(&self) -> Vec<Figure> {
        let counter = |name, help, labels, value| Figure {
            name,
            kind: FigureKind::Counter,
            help,
            labels,
            value,
        };
        let mut figures = vec![
            counter(
                "conntrack_cleans_total",
                "How often stale UDP flows were looked for.",
                Vec::new(),
                Figure::exact(self.cleans as u64),
            ),
            counter(
                "conntrack_clean_seconds_total",
                "Time spent finding and removing stale UDP flows, in seconds.",
                Vec::new(),
                self.spent.as_secs_f64(),
            ),
        ];
        for (family, deleted) in [IpFamily::V4, IpFamily::V6].into_iter().zip(self.deleted) {
            figures.push(counter(
                "conntrack_deleted_entries_total",
                "Stale UDP flows that were removed.",
                vec![("ip_family", family.as_str().to_owned())],
                Figure::exact(deleted as u64),
            ));
        }
        figures
    }
}
