//! Why a backend could not be opened: what whoever starts agents can act on. Knows no backend.

use std::path::PathBuf;

use thiserror::Error;

/// Why a backend could not be opened. Nothing that was in force before has changed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// This host, or the rights of this process, do not allow it.
    #[error("{0}")]
    Host(String),
    /// Another agent uses the same pins.
    #[error(
        "another agent holds pin directory {0}: stop it first; a second agent needs a --pin-dir of \
         its own"
    )]
    Locked(PathBuf),
    /// Another agent programs the rules of this network namespace, or keeps its connections.
    #[error(
        "another agent, {holder}, {does} in this network namespace (table ip {table}): stop it \
         first; a second agent needs a network namespace of its own"
    )]
    Held {
        /// Who, in the holder's own words.
        holder: String,
        /// What it does.
        does: &'static str,
        /// What tells so.
        table: &'static str,
    },
    /// What stopped it passes by itself, as want of memory: to be tried again, and no reason to
    /// take this host for one that cannot.
    #[error("{0}")]
    Later(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}
