//! The layers of a running agent: which there are, and which of them hold the state.

use jiff::Timestamp;
use proxy_model::Capability;
use serde::Serialize;

use crate::backend::choice::{self, capabilities};

/// One layer. Documented in `docs/state-json.md`; fields are only ever added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LayerFacts {
    /// The name of its backend.
    pub backend: &'static str,
    /// Whether it holds the state of now, as far as is known.
    pub in_force: bool,
    /// Whether it had a state in force since the agent started: the kernel keeps that, whatever
    /// fails later.
    pub serves: bool,
    /// Why its last sync or comparison failed; `null` if it did not.
    pub failure: Option<String>,
    /// When it is tried again; `null` if nothing failed.
    pub retry_at: Option<Timestamp>,
    /// What it cannot do.
    #[serde(serialize_with = "capabilities")]
    pub lacks: Vec<Capability>,
    /// How many Service ports it could not program.
    pub not_programmed: usize,
}

impl LayerFacts {
    /// What is wrong with it, in a line; `None` if nothing is.
    fn trouble(&self) -> Option<String> {
        let failure = self.failure.as_ref()?;
        let retry = self
            .retry_at
            .map_or_else(String::new, |at| format!("; tried again at {at:.0}"));
        let kept = if self.serves {
            "what it had in force stays, as far as nobody else changes it"
        } else {
            "nothing is in force yet"
        };
        Some(format!("layer {}: {kept}: {failure}{retry}", self.backend))
    }
}

/// The layers that have a state in force, for people, or all before one has.
pub(super) fn in_force(layers: &[LayerFacts]) -> String {
    let serving = layers.iter().filter(|layer| layer.serves);
    let serving: Vec<_> = serving.map(|layer| layer.backend).collect();
    if serving.is_empty() {
        let all: Vec<_> = layers.iter().map(|layer| layer.backend).collect();
        return choice::name(&all);
    }
    choice::name(&serving)
}

/// The layers that do not hold the state, for people: `nftables`, and why.
pub(super) fn behind(layers: &[LayerFacts]) -> String {
    let behind = layers.iter().filter(|layer| !layer.in_force);
    let names: Vec<_> = behind.map(|layer| layer.backend).collect();
    if names.len() == layers.len() {
        String::new()
    } else {
        format!(" in {}", names.join(", "))
    }
}

/// Lines about what is wrong, each with a line end before it.
pub fn troubles(layers: &[LayerFacts]) -> String {
    let troubles = layers.iter().filter_map(LayerFacts::trouble);
    troubles.fold(String::new(), |text, trouble| text + "\n" + &trouble)
}
