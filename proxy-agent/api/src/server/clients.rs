//! What is known of each client: what it lacks, what it has brought into force, and whether it is
//! there. Bounded, however many come and go.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use proxy_model::{Capability, ServiceFailure};
use tokio::{sync::watch, time::Instant};

use super::peer::Peer;
use crate::{ClientName, Trigger};

/// Clients that are not connected, and are remembered all the same: a backend whose process went
/// away has left a dataplane behind that follows nothing any more.
const MOST_GONE: usize = 64;
/// For how long.
const REMEMBERED: Duration = Duration::from_mins(10);
/// Streams at one time. A node has a few backends; thousands are a mistake that must not cost
/// this brain its memory.
pub const MOST_STREAMS: usize = 1_024;
/// Those of one peer: it must not take them all.
pub const SHARE: usize = MOST_STREAMS / 2;

/// A client as the brain knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientStatus {
    /// Its name.
    pub name: ClientName,
    /// What it cannot do.
    pub lacks: Vec<Capability>,
    /// Calls of Watch and Next that last at this moment.
    pub streams: usize,
    /// The revision that it has brought into force; `None` if it has reported none. A client that
    /// never reports only observes.
    pub applied: Option<u64>,
    /// How long it has been behind newer revisions without progress; `None` if it is up to date, or
    /// only observes.
    pub behind_for: Option<Duration>,
    /// Service ports that it could not program; the first 1,000.
    pub failures: Vec<ServiceFailure>,
    /// How many there are beyond those.
    pub more_failures: u32,
    /// Why a later state is not in force.
    pub error: Option<String>,
}

impl ClientStatus {
    /// One of which nothing is known but its name.
    pub fn of(name: ClientName) -> Self {
        Self {
            name,
            lacks: Vec::new(),
            streams: 0,
            applied: None,
            behind_for: None,
            failures: Vec::new(),
            more_failures: 0,
            error: None,
        }
    }
}

/// What a client reports.
#[derive(Debug)]
pub struct Reported {
    pub name: ClientName,
    pub lacks: Vec<Capability>,
    /// The revision in force, if any; 0 for a state of another brain.
    pub applied: Option<u64>,
    pub failures: Vec<ServiceFailure>,
    pub more_failures: u32,
    pub error: Option<String>,
}

/// A client has brought a change of the cluster into force.
#[derive(Debug, Clone, Copy)]
pub struct Programmed<'a> {
    /// Which client.
    pub client: &'a ClientName,
    /// The change.
    pub trigger: Trigger,
}

type Observer = dyn Fn(Programmed<'_>) + Send + Sync;

/// All clients.
pub struct Clients {
    known: Arc<Mutex<Known>>,
    /// Counts reports.
    reports: watch::Sender<u64>,
    programmed: Box<Observer>,
}

#[derive(Debug, Default)]
struct Known {
    all: BTreeMap<ClientName, Record>,
    /// Streams of those who are not known to be who they say, and only look on.
    onlookers: BTreeMap<ClientName, usize>,
    /// Of each peer those who are known, and those who are not: neither takes from the other.
    streams: HashMap<(Peer, bool), usize>,
    newest: u64,
}

#[derive(Debug)]
struct Record {
    status: ClientStatus,
    behind_since: Option<Instant>,
    /// The newest revision that it ever had in force.
    measured: Option<u64>,
    /// When its last stream ended, or it last reported without one.
    last_seen: Instant,
}

/// A stream of a client; it has ended when this is dropped.
#[derive(Debug)]
pub struct Stream {
    name: ClientName,
    peer: Peer,
    known_as: bool,
    known: Arc<Mutex<Known>>,
}

impl Clients {
    /// None yet.
    pub fn new(programmed: impl Fn(Programmed<'_>) + Send + Sync + 'static) -> Self {
        Self {
            known: Arc::default(),
            reports: watch::Sender::new(0),
            programmed: Box::new(programmed),
        }
    }

    /// A client of `peer` begins a stream; `None` if there are too many. Of one that is not `known`
    /// to be who it says, nothing is believed, and nothing is kept.
    pub fn enter(
        &self,
        peer: Peer,
        name: &ClientName,
        known: bool,
        lacks: Vec<Capability>,
    ) -> Option<Stream> {
        let mut all = lock(&self.known);
        let own = all.streams.get(&(peer, known)).copied().unwrap_or_default();
        if own >= SHARE || all.streams.values().sum::<usize>() >= MOST_STREAMS {
            return None;
        }
        all.streams.insert((peer, known), own + 1);
        if known {
            let status = &mut all.record(name).status;
            status.streams += 1;
            status.lacks = lacks;
        } else {
            *all.onlookers.entry(name.clone()).or_default() += 1;
        }
        Some(Stream {
            name: name.clone(),
            peer,
            known_as: known,
            known: Arc::clone(&self.known),
        })
    }

    /// A client reports. Returns the revision up to which it has been measured; `None` if there is
    /// nothing to measure yet.
    pub fn report(&self, report: Reported) -> Option<u64> {
        let Reported {
            name,
            lacks,
            applied,
            failures,
            more_failures,
            error,
        } = report;
        let mut known = lock(&self.known);
        let newest = known.newest;
        let record = known.record(&name);
        let before = record.status.applied;
        record.status.lacks = lacks;
        record.status.failures = failures;
        record.status.more_failures = more_failures;
        record.status.error = error;
        // A client that has nothing in force counts from the moment that it says so.
        let applied = applied.unwrap_or(0);
        record.status.applied = Some(applied);
        record.behind_since = match record.behind_since {
            _ if applied >= newest => None,
            Some(since) if before.is_some_and(|before| applied <= before) => Some(since),
            _ => Some(Instant::now()),
        };
        record.last_seen = Instant::now();
        // Each change is measured once, and the first state is none.
        let measured = record
            .measured
            .replace(record.measured.unwrap_or(applied).max(applied));
        known.forget();
        drop(known);
        self.reports.send_modify(|count| *count += 1);
        measured.filter(|measured| *measured > 0)
    }

    /// How many reports there were so far; changes with each.
    pub fn reports(&self) -> watch::Receiver<u64> {
        self.reports.subscribe()
    }

    /// Tells the observer.
    pub fn programmed(&self, client: &ClientName, triggers: Vec<Trigger>) {
        for trigger in triggers {
            (self.programmed)(Programmed { client, trigger });
        }
    }

    /// There is a new state.
    pub fn published(&self, revision: u64) {
        let mut known = lock(&self.known);
        known.newest = revision;
        for record in known.all.values_mut() {
            if record
                .status
                .applied
                .is_some_and(|applied| applied < revision)
            {
                record.behind_since.get_or_insert_with(Instant::now);
            }
        }
    }

    /// All that are connected, or were a while ago.
    pub fn all(&self) -> Vec<ClientStatus> {
        let mut known = lock(&self.known);
        known.forget();
        let status = |record: &Record| ClientStatus {
            behind_for: record.behind_since.map(|since| since.elapsed()),
            ..record.status.clone()
        };
        let mut all: Vec<_> = known.all.values().map(status).collect();
        let onlookers = known.onlookers.iter();
        let others = onlookers.filter(|(name, _)| !known.all.contains_key(name));
        all.extend(others.map(|(name, streams)| ClientStatus {
            streams: *streams,
            ..ClientStatus::of(name.clone())
        }));
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

impl Known {
    fn record(&mut self, name: &ClientName) -> &mut Record {
        self.all.entry(name.clone()).or_insert_with(|| Record {
            status: ClientStatus::of(name.clone()),
            behind_since: None,
            measured: None,
            last_seen: Instant::now(),
        })
    }

    /// Forgets who has been gone for long, and the longest gone if there are too many. Who only
    /// looked on leaves nothing behind.
    fn forget(&mut self) {
        self.all.retain(|_, record| {
            record.status.streams > 0
                || record.status.applied.is_some() && record.last_seen.elapsed() < REMEMBERED
        });
        let gone = self
            .all
            .iter()
            .filter(|(_, record)| record.status.streams == 0);
        let mut gone: Vec<_> = gone
            .map(|(name, record)| (record.last_seen, name.clone()))
            .collect();
        let too_many = gone.len().saturating_sub(MOST_GONE);
        if too_many > 0 {
            gone.sort_unstable();
            for (_, name) in gone.drain(..too_many) {
                self.all.remove(&name);
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut known = lock(&self.known);
        less(&mut known.streams, (self.peer, self.known_as));
        if !self.known_as {
            if let Some(streams) = known.onlookers.get_mut(&self.name) {
                *streams -= 1;
            }
            known.onlookers.retain(|_, streams| *streams > 0);
        } else if let Some(record) = known.all.get_mut(&self.name) {
            record.status.streams -= 1;
            record.last_seen = Instant::now();
        }
        known.forget();
    }
}

/// One stream less of these.
fn less(streams: &mut HashMap<(Peer, bool), usize>, of: (Peer, bool)) {
    if let Some(own) = streams.get_mut(&of) {
        *own -= 1;
        if *own == 0 {
            streams.remove(&of);
        }
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clients").field(&self.known).finish()
    }
}

/// Nothing can panic while it is held, so that it is never poisoned.
fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
