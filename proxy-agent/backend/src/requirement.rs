//! What a backend needs of a host, and whether that has it. Knows no backend.

use serde::Serialize;

/// Something that a backend needs of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// What is needed, in a few words.
    pub name: &'static str,
    /// Whether the backend cannot work without it; otherwise it is only worth knowing.
    pub required: bool,
    /// Whether it is there.
    pub met: bool,
    /// What was found.
    pub found: String,
    /// Why it is needed.
    pub reason: &'static str,
    /// What to do where it is missing.
    pub remedy: Option<String>,
}
