//! Forms of the log.

use clap::ValueEnum;

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text on a terminal, otherwise JSON.
    Auto,
    /// Lines for people.
    Text,
    /// A JSON object a line.
    Json,
}
