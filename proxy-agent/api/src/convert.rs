//! The model's values as messages, and back. What is sent is what the model says; what comes is
//! checked: a backend may rely on each item as it relies on the model's own.

pub(crate) mod decode;
#[cfg(feature = "server")]
pub(crate) mod encode;
pub(crate) mod names;
#[cfg(feature = "server")]
pub(crate) mod reports;
#[cfg(test)]
mod tests;

use thiserror::Error;

/// Why a message cannot be what the other side meant.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{path}: {problem}")]
pub struct DecodeError {
    /// The field, such as `service_port shop/web/TCP/IPv4.frontends[0].address`.
    path: String,
    problem: String,
}

impl DecodeError {
    pub(crate) fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            problem: problem.into(),
        }
    }

    /// The same error, seen from outside of `field`.
    fn within(mut self, field: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') {
            ""
        } else {
            "."
        };
        self.path = format!("{field}{dot}{}", self.path);
        self
    }
}
