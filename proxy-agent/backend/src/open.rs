//! Why a backend could not be opened, as far as those who start agents can act on it. Knows no
//! backend.

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
        "another agent holds pin directory {0}: stop it first; a second agent needs a --pin-dir and \
         a network namespace of its own"
    )]
    Locked(PathBuf),
    /// Another agent programs the rules of this network namespace, or keeps its connections.
    #[error(
        "another agent, {holder}, {does} in this network namespace ({shown_by}): stop it \
         first; a second agent needs a --pin-dir and a network namespace of its own"
    )]
    Held {
        /// The holder, in its own words.
        holder: String,
        /// What it does.
        does: &'static str,
        /// What shows it, such as a table.
        shown_by: &'static str,
    },
    /// The cause is temporary, such as lack of memory: to be retried, and no reason to conclude
    /// that this host cannot serve.
    #[error("{0}")]
    Later(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl OpenError {
    /// Whether another agent holds what only one can have.
    pub const fn is_holder(&self) -> bool {
        matches!(self, Self::Locked(_) | Self::Held { .. })
    }

    /// Whether a later attempt may succeed although nobody changes this host.
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::Later(_)) || self.is_holder()
    }
}
