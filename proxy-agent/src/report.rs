//! Node-local state as output, and why a packet goes where it goes: JSON for programs, text for
//! people. Formats what the model says; knows neither the cluster nor the kernel.

mod agent;
mod clients;
pub mod connections;
pub mod explain;
mod form;
pub mod json;
mod kernel;
mod layers;
mod missing;
mod table;
mod text;

pub use self::{
    clients::{ApiFacts, ClientFacts},
    form::Form,
};
pub use agent::{AgentFacts, NotProgrammed, agent_to_json, agent_to_text};
pub use kernel::{Compared, kernel_to_json, kernel_to_text, nothing_known};
pub use layers::{DeviceFacts, LayerFacts, troubles};
use proxy_model::NodeState;

/// The state as JSON, indented, with a line end. The shape is an interface: `docs/state-json.md`.
pub fn to_json(state: &NodeState) -> String {
    json::pretty(&json::State::of(state))
}

/// The state as an aligned table. Not an interface: it may change at any time.
pub fn to_text(state: &NodeState) -> String {
    text::render(state)
}

#[cfg(test)]
mod tests;
