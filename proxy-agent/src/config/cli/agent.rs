//! What the commands take that run as agents: `run`, `brain`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Where the state goes besides the backend.
#[derive(Debug, Clone, Default, Args)]
pub struct SinkArgs {
    /// Write the state into this file each time it changes, as JSON: the file is replaced as a
    /// whole; `-` for standard output; the JSON is described in docs/state-json.md
    #[arg(short, long, value_name = "FILE")]
    pub output_file: Option<PathBuf>,
}

/// The log.
#[derive(Debug, Clone, Args)]
pub struct LogArgs {
    /// Form of the log on standard error: text on a terminal, otherwise JSON lines
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "auto")]
    pub log_format: LogFormat,

    /// Least severe level that is logged; also takes tracing filter directives
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
}

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
