//! What a server has seen: every request, and how many watches are open.
//!
//! Waiting is for events, never for time: [`Seen::until`] from async code, [`Seen::wait`] from
//! any other.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use tokio::{sync::watch, time::timeout};

use super::{kind::Kind, query::Verb};

/// How long anything that is waited for may take.
const LIMIT: Duration = Duration::from_mins(1);

/// A request, as it arrived.
#[derive(Debug, Clone)]
pub struct Request {
    /// When its headers had arrived.
    pub at: Instant,
    /// `GET`.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query as it was sent.
    pub query: String,
    /// What it asks for, if it asks for objects.
    pub asks: Option<(Verb, Kind)>,
    /// The bearer token.
    pub token: Option<String>,
    /// The name in the client certificate.
    pub certificate: Option<String>,
    /// Which of the server's connections it came on, from 1 on.
    pub connection: u64,
    /// The status of the answer; 0 if there was none.
    pub status: u16,
}

/// All that was seen so far.
#[derive(Debug, Clone, Default)]
pub struct Sight {
    /// Every request since the start, in order of arrival.
    pub requests: Vec<Request>,
    /// Open watches of each kind: those that are past their first events.
    pub watches: BTreeMap<Kind, usize>,
    /// Connections ever made.
    pub connections: u64,
    /// Connections open now.
    pub open_connections: u64,
    /// Bytes of all bodies sent.
    pub bytes: u64,
}

impl Sight {
    /// How many requests asked for this.
    pub fn count(&self, verb: Verb, kind: Kind) -> usize {
        let asks = Some((verb, kind));
        self.requests.iter().filter(|one| one.asks == asks).count()
    }

    /// How many watches of `kind` are open.
    pub fn open(&self, kind: Kind) -> usize {
        self.watches.get(&kind).copied().unwrap_or_default()
    }
}

/// Sight, and a way to wait for it to change.
#[derive(Debug)]
pub(super) struct Seen {
    sight: Mutex<Sight>,
    changed: Condvar,
    version: watch::Sender<u64>,
}

impl Seen {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            sight: Mutex::default(),
            changed: Condvar::new(),
            version: watch::Sender::new(0),
        })
    }

    /// A copy.
    pub(super) fn now(&self) -> Sight {
        self.locked().clone()
    }

    /// Changes it and wakes whoever waits.
    pub(super) fn note<T>(&self, change: impl FnOnce(&mut Sight) -> T) -> T {
        let result = change(&mut self.locked());
        self.changed.notify_all();
        self.version.send_modify(|version| *version += 1);
        result
    }

    /// Counts bytes, which nobody waits for.
    pub(super) fn sent(&self, bytes: usize) {
        self.locked().bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
    }

    /// Waits until `wanted` gives something; `what` is what the error calls it.
    pub(super) async fn until<T>(
        &self,
        what: &str,
        mut wanted: impl FnMut(&Sight) -> Option<T>,
    ) -> Result<T> {
        let mut version = self.version.subscribe();
        let waiting = async {
            loop {
                version.borrow_and_update();
                if let Some(found) = wanted(&self.locked()) {
                    return found;
                }
                if version.changed().await.is_err() {
                    // The sender is in `self`.
                    unreachable!("what is borrowed here lives as long as the wait");
                }
            }
        };
        match timeout(LIMIT, waiting).await {
            Ok(found) => Ok(found),
            Err(_) => bail!("{}", self.missed(what)),
        }
    }

    /// Like [`Seen::until`], blocking.
    pub(super) fn wait<T>(
        &self,
        what: &str,
        mut wanted: impl FnMut(&Sight) -> Option<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + LIMIT;
        let mut sight = self.locked();
        loop {
            if let Some(found) = wanted(&sight) {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.changed.wait_timeout(sight, left);
            sight = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(sight);
        bail!("{}", self.missed(what))
    }

    fn missed(&self, what: &str) -> String {
        let sight = self.locked();
        let last = sight.requests.iter().rev().take(20).rev();
        let last: Vec<String> = last
            .map(|one| {
                format!(
                    "{} {}?{} -> {}",
                    one.method, one.path, one.query, one.status
                )
            })
            .collect();
        format!(
            "the API server did not see {what} in {LIMIT:?}; open watches: {:?}; last requests:\n{}",
            sight.watches,
            last.join("\n")
        )
    }

    fn locked(&self) -> MutexGuard<'_, Sight> {
        // A panicking closure of a test leaves nothing half done: notes are single assignments.
        self.sight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
