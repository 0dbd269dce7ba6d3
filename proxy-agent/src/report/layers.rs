//! The layers of a running agent: which there are, and which of them hold the state.

use std::collections::BTreeMap;

use jiff::Timestamp;
use proxy_model::{Capability, Device};
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
    /// The devices that packets from outside may come in by, if it serves clients outside by programs
    /// on devices.
    pub devices: Vec<DeviceFacts>,
}

/// A device of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceFacts {
    /// Its name.
    pub name: String,
    /// Whether programs on it serve clients outside.
    pub served: bool,
    /// What for, or why not.
    pub reason: String,
}

impl From<Device> for DeviceFacts {
    fn from(device: Device) -> Self {
        Self {
            name: device.name,
            served: device.is_served,
            reason: device.reason,
        }
    }
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

/// How many devices are named that have the same reason not to be served.
const NAMED: usize = 4;

/// Lines about devices, each with a line end before it: one for each that is served, and one for each
/// reason why others are not.
pub(super) fn devices(layers: &[LayerFacts]) -> String {
    let mut text = String::new();
    let mut others: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for device in layers.iter().flat_map(|layer| &layer.devices) {
        if device.served {
            text += &["\ndevice ", &device.name, ": ", &device.reason].concat();
        } else {
            others.entry(&device.reason).or_default().push(&device.name);
        }
    }
    for (reason, names) in others {
        let word = if names.len() == 1 {
            "device"
        } else {
            "devices"
        };
        let named = names[..names.len().min(NAMED)].join(", ");
        text += &["\n", word, " ", &named].concat();
        if names.len() > NAMED {
            let more = (names.len() - NAMED).to_string();
            text += &[" and ", &more, " more"].concat();
        }
        text += &[": ", reason].concat();
    }
    text
}

/// Lines about what is wrong, each with a line end before it.
pub fn troubles(layers: &[LayerFacts]) -> String {
    let troubles = layers.iter().filter_map(LayerFacts::trouble);
    troubles.fold(String::new(), |text, trouble| text + "\n" + &trouble)
}
