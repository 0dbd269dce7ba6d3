//! Why the eBPF dataplane could not be opened.

use std::{io, path::PathBuf};

use thiserror::Error;

/// Why the eBPF dataplane could not be opened. Nothing that was in force before has changed.
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
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// What to do when the kernel denies permission.
pub const RIGHTS: &str = "run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON";

impl OpenError {
    /// An I/O error while doing `what`.
    pub fn io(error: &io::Error, what: &str) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Host(format!("{what}: {error}; {RIGHTS}")),
            _ => Self::Other(format!("{what}: {error}")),
        }
    }

    /// The kernel refused `what` for the reason given.
    pub fn kernel(what: &str, reason: &str) -> Self {
        Self::Host(format!(
            "{what}: {reason}; Culvert's eBPF backend needs Linux 5.10 or later with BPF, cgroup \
             v2 and BTF enabled"
        ))
    }
}

/// The text of an error and of its causes, each said once.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}
