//! Why a packet goes where it goes: the oracle's verdict as JSON for programs, and as a story for
//! people. Decides nothing; `proxy_model::oracle` does.

mod arrival;
mod known;
mod layers;
mod nearby;
mod question;
mod rule;
mod shortfall;
mod story;

use std::net::SocketAddr;

use proxy_model::{
    Device, ServicePortKey,
    oracle::{Packet, Path, Verdict, verdict},
};
use serde::{Deserialize, Serialize};

use crate::backend::choice::Choice;

pub use self::arrival::Arrival;
pub use self::known::Known;
pub use self::question::{QuestionError, destination, packet, source};

/// The answer to one question. Travels as it is between an agent and who asks it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// What programs want to know.
    pub answer: Answer,
    /// What people want to know: lines of text.
    pub story: String,
}

/// What becomes of a packet. Its JSON is an interface: fields are only ever added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// `forward`, `reject`, `drop` or `pass`.
    pub outcome: String,
    /// The Service port that was dialled, as kube-proxy prints it: `shop/web:http`, or `shop/web`
    /// if the port has no name; `null` if none was.
    pub service: Option<String>,
    /// Where the packet may land, ordered by address.
    pub endpoints: Vec<Landing>,
    /// The backend of the layer that decides, as the running agent knows; absent without an agent, and
    /// where no layer meets such packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
}

/// An endpoint that a packet may land on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landing {
    /// `ip:port` or `[ip]:port`.
    pub address: SocketAddr,
    /// Whether the endpoint sees this node as the source.
    pub masquerade: bool,
}

/// What becomes of `packet`, and why.
pub fn explain<'a>(known: impl Into<Known<'a>>, packet: &Packet, path: Path) -> Explanation {
    let known = known.into();
    let packet = &packet.canonical();
    let verdict = verdict(known.state(), packet, path);
    told(known, packet, path, &verdict)
}

/// What an agent has in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    /// The choice, with the layers that had a state in force.
    pub choice: Choice,
    /// Service ports that the layer above could not program: the one beneath decides about them.
    pub left: Vec<ServicePortKey>,
    /// The devices that packets from outside may come in by.
    pub devices: Vec<Device>,
    /// What is wrong with layers, for people: lines, each with a line end before it.
    pub troubles: String,
}

impl From<Choice> for InForce {
    /// Layers with which nothing is wrong.
    fn from(choice: Choice) -> Self {
        Self {
            choice,
            left: Vec::new(),
            devices: Vec::new(),
            troubles: String::new(),
        }
    }
}

/// The same by an agent that serves: its story ends with the layer that decides, with what none of
/// them can do of it, and with what is wrong with them.
pub fn explain_served<'a>(
    known: impl Into<Known<'a>>,
    packet: &Packet,
    path: Path,
    in_force: &InForce,
) -> Explanation {
    let known = known.into();
    let (state, packet) = (known.state(), &packet.canonical());
    let choice = &in_force.choice;
    let decision = layers::decide(state, packet, path, in_force);
    let mut explanation = told(known, packet, decision.path, &decision.verdict);
    explanation.answer.layer = decision.layer.map(str::to_owned);
    if !decision.why.is_empty() {
        explanation.story += &["\nLayers: ", &decision.why, "\n"].concat();
    }
    let shortfall = shortfall::tell(state, packet, path, &decision.verdict, choice);
    explanation.story += &shortfall;
    if !in_force.troubles.is_empty() {
        explanation.story += &[&in_force.troubles, "\n"].concat();
    }
    explanation
}

fn told(known: Known<'_>, packet: &Packet, path: Path, verdict: &Verdict) -> Explanation {
    let landings = verdict.targets.iter().map(|target| Landing {
        address: target.address,
        masquerade: target.masquerade.is_some(),
    });
    Explanation {
        answer: Answer {
            outcome: verdict.outcome.to_string(),
            service: verdict.service.as_ref().map(service_port),
            endpoints: landings.collect(),
            layer: None,
        },
        story: story::tell(known, packet, path, verdict),
    }
}

impl Explanation {
    /// The answer as one line of JSON, with its line end.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string(&self.answer);
        json.expect("strings, booleans and lists always serialise") + "\n"
    }

    /// The story. Not an interface: it may change at any time.
    pub fn to_text(&self) -> &str {
        &self.story
    }
}

/// `shop/web:http`, or `shop/web` if the port has no name: as kube-proxy prints it.
pub(super) fn service_port(key: &ServicePortKey) -> String {
    if key.port.is_empty() {
        key.service.to_string()
    } else {
        format!("{}:{}", key.service, key.port)
    }
}

#[cfg(test)]
mod tests;
