//! Forms of an answer.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// For people.
    #[default]
    Text,
    /// JSON.
    Json,
}
