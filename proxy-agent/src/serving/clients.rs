//! The clients of the node API, as health, metrics and `state` see them. What they are told is the
//! publisher's matter; what their lag means for health is health's.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use prometheus::{HistogramOpts, HistogramVec};
use proxy_api::server::{ClientStatus, Programmed, Publisher};
use proxy_model::{Figure, FigureKind};

use super::metrics::{Collector, definitions};
use crate::report::{ApiFacts, ClientFacts};

/// Clients that have metrics of their own. A node has a few; those beyond share a name, so that
/// nobody who connects under ever new names makes a scrape grow.
const MOST_NAMED: usize = 64;
/// The name that they share. No client can have it.
const OTHERS: &str = "(others)";

/// Everything that is known of clients.
#[derive(Debug)]
pub struct Clients {
    publisher: Publisher,
    latency: Latency,
}

/// How long changes of the cluster took until clients had them in force.
#[derive(Debug, Clone)]
struct Latency {
    /// Changes from before are none of this agent's: a restart would count them as slow.
    started: SystemTime,
    histogram: HistogramVec,
    /// Names that the histogram has.
    named: Arc<Mutex<BTreeSet<String>>>,
}

impl Clients {
    /// Nobody yet.
    pub fn new() -> Arc<Self> {
        let latency = Latency::new();
        let observed = latency.clone();
        let publisher = Publisher::new(move |programmed| observed.programmed(programmed));
        Arc::new(Self { publisher, latency })
    }

    /// Whom to hand states.
    pub fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// For how long the client that is behind longest has been: of those that report.
    pub fn behind_for(&self) -> Duration {
        let clients = self.publisher.clients();
        let behind = clients.iter().filter_map(|client| client.behind_for);
        behind.max().unwrap_or_default()
    }

    /// For `state`.
    pub fn facts(&self) -> ApiFacts {
        let facts = |client: ClientStatus| ClientFacts {
            name: client.name.to_string(),
            connected: client.streams > 0,
            lacks: client.lacks,
            applied: client.applied,
            behind_for: client.behind_for,
            failures: client.failures,
            more_failures: client.more_failures,
            error: client.error,
        };
        ApiFacts {
            revision: self.publisher.revision(),
            clients: self.publisher.clients().into_iter().map(facts).collect(),
        }
    }

    /// Read at each scrape.
    pub fn collector(self: &Arc<Self>) -> Collector {
        let clients = Arc::clone(self);
        Box::new(move || {
            let all = clients.publisher.clients();
            clients.latency.keep(&all);
            figures(clients.publisher.revision(), &all)
        })
    }

    /// For the registry.
    pub fn latency(&self) -> HistogramVec {
        self.latency.histogram.clone()
    }
}

impl Latency {
    fn new() -> Self {
        let of = &definitions::CLIENT_PROGRAMMING;
        let options = HistogramOpts::new(of.name, of.help).buckets(definitions::buckets(of));
        Self {
            started: SystemTime::now(),
            histogram: HistogramVec::new(options, of.labels).expect("the definition is valid"),
            named: Arc::default(),
        }
    }

    fn programmed(&self, programmed: Programmed<'_>) {
        let Programmed { client, trigger } = programmed;
        if trigger.at < self.started {
            return;
        }
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let known = named.contains(client.as_str());
        let name = if known || named.len() < MOST_NAMED {
            client.as_str()
        } else {
            OTHERS
        };
        if !known && name != OTHERS {
            named.insert(name.to_owned());
        }
        // A clock of the control plane that goes ahead gives a change that took no time.
        let took = SystemTime::now()
            .duration_since(trigger.at)
            .unwrap_or_default();
        let labels = [name, trigger.family.as_str()];
        let histogram = self.histogram.with_label_values(&labels);
        histogram.observe(took.as_secs_f64());
    }

    /// Forgets those that nobody remembers.
    fn keep(&self, all: &[ClientStatus]) {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.retain(|name| {
            let known = all.iter().any(|client| client.name.as_str() == name);
            if !known {
                for family in ["IPv4", "IPv6"] {
                    // It may never have had a change of this family.
                    drop(self.histogram.remove_label_values(&[name, family]));
                }
            }
            known
        });
    }
}

/// A figure of a client: name, meaning, value.
type OfClient = (&'static str, &'static str, fn(&ClientStatus) -> f64);

const OF_CLIENT: [OfClient; 5] = [
    (
        "culvert_client_connected",
        "1 while the client is connected",
        |client| Figure::exact((client.streams > 0).into()),
    ),
    (
        "culvert_client_revision",
        "Revision that the client has in force; 0 before it reported one",
        |client| Figure::exact(client.applied.unwrap_or(0)),
    ),
    (
        "culvert_client_behind_seconds",
        "For how long the client has been behind without progress; 0 if it is up to date, or only \
         observes",
        |client| client.behind_for.unwrap_or_default().as_secs_f64(),
    ),
    (
        "culvert_client_service_ports_not_programmed",
        "Service ports that the client could not program; `state` names them",
        |client| Figure::exact(client.failures.len() as u64 + u64::from(client.more_failures)),
    ),
    (
        "culvert_client_failing",
        "1 while the client cannot bring a state into force; `state` says why",
        |client| Figure::exact(client.error.is_some().into()),
    ),
];

/// Of the newest revision, and of each client; those that report come first where there are many.
pub(super) fn figures(revision: u64, all: &[ClientStatus]) -> Vec<Figure> {
    let (reporting, others): (Vec<_>, Vec<_>) =
        all.iter().partition(|client| client.applied.is_some());
    let figure = |name, help, labels, value| Figure {
        name,
        kind: FigureKind::Gauge,
        help,
        labels,
        value,
    };
    let mut figures = vec![
        figure(
            "culvert_clients",
            "Clients of the node API, including those that disconnected recently",
            Vec::new(),
            Figure::exact(all.len() as u64),
        ),
        figure(
            "culvert_published_revision",
            "Newest revision that is published to clients; 0 before the first",
            Vec::new(),
            Figure::exact(revision),
        ),
    ];
    for (name, help, value) in OF_CLIENT {
        let some = reporting.iter().chain(&others).take(MOST_NAMED);
        figures.extend(some.map(|client| {
            let labels = vec![("client", client.name.to_string())];
            figure(name, help, labels, value(client))
        }));
    }
    figures
}

/// For the reference page.
pub(super) fn described() -> Vec<Figure> {
    let client = ClientStatus::of("any".parse().expect("it is a valid name"));
    figures(0, &[client])
}
