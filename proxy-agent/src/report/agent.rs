//! What the running agent adds to the state it holds.

use std::fmt::Write as _;

use jiff::Timestamp;
use proxy_model::NodeState;
use serde::Serialize;

use super::{
    clients::{self, Api, ApiFacts},
    json,
    layers::{self, LayerFacts},
    missing, text,
};
use crate::{backend::choice::Choice, cluster::Stale, own_node::Missing};

/// Facts about a running agent. Documented in `docs/state-json.md`; fields are only ever added.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentFacts {
    /// The layers in use, why these, and what they cannot do together.
    #[serde(flatten)]
    pub choice: Choice,
    /// Each of them, the one that decides first first.
    pub layers: Vec<LayerFacts>,
    /// Whether the layers do all that Service ports need.
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
    /// Whether the state is in force in every layer, as far as the agent knows.
    pub in_force: bool,
    /// How often the state in force changed since the agent started.
    pub revision: u64,
    /// Events from the source since the agent started; many come to one revision.
    pub events: u64,
    /// When the state last came into force.
    pub last_sync: Option<Timestamp>,
    /// Differences between kernel and state that were mended since the agent started.
    pub repaired: u64,
    /// Service ports that a layer could not program.
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
            layers: choice
                .layers
                .iter()
                .map(|name| LayerFacts {
                    backend: name,
                    in_force: true,
                    serves: true,
                    failure: None,
                    retry_at: None,
                    lacks: choice.lacks.clone(),
                    not_programmed: 0,
                    devices: Vec::new(),
                })
                .collect(),
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

/// A Service port that a layer could not program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotProgrammed {
    /// The name of its backend.
    pub layer: &'static str,
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
    text += &missing::render(state, &agent.choice, &agent.layers);
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
            &format!(
                "not programmed in {}: {}: {}",
                one.layer, one.service, one.reason
            ),
        );
    }
    text
}

pub(super) fn summary(agent: &AgentFacts) -> String {
    let Choice { mode, reason, .. } = &agent.choice;
    let backend = agent.choice.name();
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
        text.push_str(", NOT IN FORCE");
        text += &layers::behind(&agent.layers);
        text.push_str(": the last sync failed and is retried");
    }
    if agent.repaired != 0 {
        write!(text, ", {} differences repaired", agent.repaired)
            .expect("writing to a string cannot fail");
    }
    text += &layers::troubles(&agent.layers);
    text += &layers::devices(&agent.layers);
    if *mode != backend {
        write!(text, "\nmode {mode}: {reason}").expect("writing to a string cannot fail");
    }
    for refused in &agent.choice.refused {
        write!(text, "\n  not {}: {}", refused.backend, refused.reason)
            .expect("writing to a string cannot fail");
    }
    text
}

pub(super) fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}
