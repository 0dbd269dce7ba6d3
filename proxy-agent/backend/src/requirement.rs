//! What a backend needs of a host, and whether the host has it. Knows no backend.

use serde::Serialize;

/// Something that a backend needs of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// What is needed, in a few words.
    pub name: &'static str,
    /// Whether the backend cannot work without it; otherwise it is for information.
    pub required: bool,
    /// Whether it is present.
    pub met: bool,
    /// What was found.
    pub found: String,
    /// Why it is needed.
    pub reason: &'static str,
    /// What to do if it is missing.
    pub remedy: Option<String>,
}
