//! What the running agent adds to the state it holds, and how the kernel differs from it.

use std::fmt::Write as _;

use jiff::Timestamp;
use proxy_model::{Difference, NodeState, ServicePortKey};
use serde::Serialize;

use super::{
    clients::{self, Api, ApiFacts},
    json, missing, text,
};
use crate::{backend::choice::Choice, cluster::Stale, own_node::Missing};

/// Facts about a running agent. Documented in `docs/state-json.md`; fields are only ever added.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentFacts {
    /// The backend in use, why, and what it cannot do.
    #[serde(flatten)]
    pub choice: Choice,
    /// Whether the backend does all that Service ports need.
    pub suffices: bool,
    /// Where cluster objects come from.
    pub source: String,
    /// Since when the brain that is followed cannot be heard, and why; `null` while it can, and
    /// with other sources.
    pub stale: Option<Stale>,
    /// Whether the source has told everything once.
    pub synced: bool,
    /// That no node of the cluster has this node's name; `null` if one has.
    pub node_missing: Option<Missing>,
    /// Whether the state is in force, as far as the agent knows.
    pub in_force: bool,
    /// How often the state in force changed since the agent started.
    pub revision: u64,
    /// Events from the source since the agent started; many come to one revision.
    pub events: u64,
    /// When the state last came into force.
    pub last_sync: Option<Timestamp>,
    /// Differences between kernel and state that were mended since the agent started.
    pub repaired: u64,
    /// Service ports that are not programmed.
    pub not_programmed: Vec<NotProgrammed>,
    /// The clients of the node API; `None` if it is not served. Told beside the state only, which
    /// says what they miss.
    #[serde(skip)]
    pub api: Option<ApiFacts>,
}

#[cfg(test)]
impl AgentFacts {
    /// Of an agent in good order that serves manifests.
    pub fn in_order(choice: Choice) -> Self {
        Self {
            choice,
            suffices: true,
            source: "manifests".to_owned(),
            stale: None,
            synced: true,
            node_missing: None,
            in_force: true,
            revision: 3,
            events: 70,
            last_sync: None,
            repaired: 0,
            not_programmed: vec![],
            api: None,
        }
    }
}

/// A Service port that is not programmed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotProgrammed {
    /// `NAMESPACE/NAME:PORT/PROTOCOL/FAMILY`.
    pub service: String,
    /// Why.
    pub reason: String,
}

#[derive(Serialize)]
struct WithAgent<'a> {
    #[serde(flatten)]
    state: json::State<'a>,
    agent: Agent<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Agent<'a> {
    #[serde(flatten)]
    facts: &'a AgentFacts,
    node_api: Option<Api<'a>>,
}

#[derive(Serialize)]
struct Kernel<'a> {
    agent: &'a AgentFacts,
    differences: Vec<Different<'a>>,
}

#[derive(Serialize)]
struct Different<'a> {
    object: &'a str,
    difference: &'static str,
    service: Option<String>,
    wanted: Option<&'a str>,
    found: Option<&'a str>,
}

/// The state and the agent that holds it, as JSON.
pub fn agent_to_json(state: &NodeState, agent: &AgentFacts) -> String {
    json::pretty(&WithAgent {
        state: json::State::with_missing(state, &agent.choice.lacks),
        agent: Agent {
            facts: agent,
            node_api: agent.api.as_ref().map(|api| Api::of(api, state)),
        },
    })
}

/// The state as a table, and below it the agent that holds it.
pub fn agent_to_text(state: &NodeState, agent: &AgentFacts) -> String {
    let mut text = text::render(state);
    text += &missing::render(state, &agent.choice);
    if let Some(api) = &agent.api {
        text += &clients::render(api, state);
    }
    line(&mut text, "");
    line(&mut text, &summary(agent));
    if let Some(missing) = &agent.node_missing {
        line(&mut text, &format!("NODE NOT FOUND: {}", missing.text));
    }
    for one in &agent.not_programmed {
        line(
            &mut text,
            &format!("not programmed: {}: {}", one.service, one.reason),
        );
    }
    text
}

/// How the kernel differs from the state, as JSON.
pub fn kernel_to_json(agent: &AgentFacts, differences: &[Difference]) -> String {
    let differences = differences.iter().map(|one| Different {
        object: &one.object,
        difference: one.kind.as_str(),
        service: one.service.as_ref().map(ServicePortKey::to_string),
        wanted: one.wanted.as_deref(),
        found: one.found.as_deref(),
    });
    json::pretty(&Kernel {
        agent,
        differences: differences.collect(),
    })
}

/// How the kernel differs from the state, for people.
pub fn kernel_to_text(agent: &AgentFacts, differences: &[Difference]) -> String {
    let mut text = String::new();
    for one in differences {
        let mut about = format!("{} {}", one.kind.as_str(), one.object);
        if let Some(service) = &one.service {
            write!(about, " of {service}").expect("writing to a string cannot fail");
        }
        line(&mut text, &about);
        for (name, value) in [("wanted", &one.wanted), ("found", &one.found)] {
            if let Some(value) = value {
                line(&mut text, &format!("  {name}: {value}"));
            }
        }
    }
    let count = match differences.len() {
        0 => "the kernel matches the state".to_owned(),
        1 => {
            "1 difference; it is repaired with the next comparison, or at once on SIGHUP".to_owned()
        }
        many => format!(
            "{many} differences; they are repaired with the next comparison, or at once on SIGHUP"
        ),
    };
    line(&mut text, &count);
    line(&mut text, &summary(agent));
    text
}

fn summary(agent: &AgentFacts) -> String {
    let Choice {
        backend,
        mode,
        reason,
        ..
    } = &agent.choice;
    let mut text = format!(
        "backend {backend}, objects from {}, revision {} after {} events",
        agent.source, agent.revision, agent.events
    );
    if let Some(last) = agent.last_sync {
        write!(text, ", last change {last:.0}").expect("writing to a string cannot fail");
    }
    if let Some(stale) = &agent.stale {
        write!(
            text,
            ", STALE: nothing received since {:.0}: {}",
            stale.since, stale.reason
        )
        .expect("writing to a string cannot fail");
    }
    if !agent.in_force {
        text.push_str(", NOT IN FORCE: the last sync failed and is retried");
    }
    if agent.repaired != 0 {
        write!(text, ", {} differences repaired", agent.repaired)
            .expect("writing to a string cannot fail");
    }
    if mode != backend {
        write!(text, "\nmode {mode}: {reason}").expect("writing to a string cannot fail");
    }
    for refused in &agent.choice.refused {
        write!(text, "\n  not {}: {}", refused.backend, refused.reason)
            .expect("writing to a string cannot fail");
    }
    text
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}
