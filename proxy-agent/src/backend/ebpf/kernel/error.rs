//! What becomes an error of opening the eBPF dataplane, and how.

use std::io;

pub use crate::backend::open::OpenError;

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
