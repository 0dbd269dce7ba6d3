//! The clients of the node API: whether each has the newest state in force, and what of it it
//! cannot do.

use std::{collections::BTreeMap, time::Duration};

use proxy_model::{Capability, NodeState, ServiceFailure};
use serde::Serialize;

use super::table;

/// What the publisher knows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ApiFacts {
    /// Number of the newest state that clients are told; 0 before the first.
    pub revision: u64,
    /// Ordered by name.
    pub clients: Vec<ClientFacts>,
}

/// One client.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientFacts {
    /// As it calls itself.
    pub name: String,
    /// Whether it follows at this moment.
    pub connected: bool,
    /// What it cannot do.
    pub lacks: Vec<Capability>,
    /// The revision that it has in force; `None` if it never reported.
    pub applied: Option<u64>,
    /// For how long it has not come nearer to newer ones.
    pub behind_for: Option<Duration>,
    /// Service ports that it could not program.
    pub failures: Vec<ServiceFailure>,
    /// How many more there are, which are only counted.
    pub more_failures: u32,
    /// Why a later state is not in force.
    pub error: Option<String>,
}

/// The JSON form. Documented in `docs/state-json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Api<'a> {
    revision: u64,
    clients: Vec<Client<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Client<'a> {
    name: &'a str,
    connected: bool,
    lacks: Vec<&'static str>,
    /// How many Service ports need each of those.
    missing: BTreeMap<&'static str, usize>,
    applied: Option<u64>,
    behind_seconds: Option<f64>,
    failures: Vec<Failure<'a>>,
    more_failures: u32,
    error: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Failure<'a> {
    service: String,
    reason: &'a str,
}

impl<'a> Api<'a> {
    pub fn of(facts: &'a ApiFacts, state: &NodeState) -> Self {
        let client = |client: &'a ClientFacts| Client {
            name: &client.name,
            connected: client.connected,
            lacks: client.lacks.iter().map(|one| one.as_str()).collect(),
            missing: missing(state, &client.lacks),
            applied: client.applied,
            behind_seconds: client.behind_for.map(|behind| behind.as_secs_f64()),
            failures: client.failures.iter().map(Failure::of).collect(),
            more_failures: client.more_failures,
            error: client.error.as_deref(),
        };
        Self {
            revision: facts.revision,
            clients: facts.clients.iter().map(client).collect(),
        }
    }
}

impl<'a> Failure<'a> {
    fn of(failure: &'a ServiceFailure) -> Self {
        Self {
            service: failure.key.to_string(),
            reason: &failure.reason,
        }
    }
}

/// How many Service ports need what is lacking.
fn missing(state: &NodeState, lacks: &[Capability]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    if lacks.is_empty() {
        return counts;
    }
    for (key, service) in &state.services {
        for capability in state.missing(key, service, lacks) {
            *counts.entry(capability.as_str()).or_default() += 1;
        }
    }
    counts
}

/// For people: a table, and below it what is wrong. An empty line comes first.
pub(super) fn render(facts: &ApiFacts, state: &NodeState) -> String {
    let ApiFacts { revision, clients } = facts;
    if clients.is_empty() {
        return format!("\nNo clients of the node API; its newest revision is {revision}.\n");
    }
    let header = [
        "CLIENT",
        "CONNECTED",
        "REVISION",
        "BEHIND",
        "MISSING",
        "NOT PROGRAMMED",
    ];
    let row = |client: &ClientFacts| {
        let missing = missing(state, &client.lacks);
        let missing: Vec<_> = missing
            .iter()
            .map(|(capability, count)| format!("{capability} ({count})"))
            .collect();
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        [
            client.name.clone(),
            if client.connected { "yes" } else { "no" }.to_owned(),
            or_dash(client.applied.map(|applied| applied.to_string())),
            or_dash(
                client
                    .behind_for
                    .map(|behind| format!("{}s", behind.as_secs())),
            ),
            or_dash((!missing.is_empty()).then(|| table::list(&missing))),
            (client.failures.len() as u64 + u64::from(client.more_failures)).to_string(),
        ]
    };
    let mut text = format!(
        "\nClients of the node API, whose newest revision is {revision}:\n\n{}",
        table::of(&header, clients.iter().map(row))
    );
    for client in clients {
        let error = client.error.iter().cloned();
        let failures = client.failures.iter().map(|failure| {
            let service = failure.key.to_string();
            ["not programmed: ", &service, ": ", &failure.reason].concat()
        });
        for problem in error.chain(failures) {
            text += &[&client.name, ": ", &problem, "\n"].concat();
        }
    }
    text
}
