//! Why something of kube-proxy could not be removed.

use std::{
    io,
    process::{ExitStatus, Output},
};

use thiserror::Error;

/// Why something of kube-proxy could not be removed. Of which thing, the caller knows.
#[derive(Debug, Error)]
pub(super) enum RemoveError {
    /// A program of the host could not be run.
    #[error("running `{program}`: {error}")]
    NotRun {
        /// Which.
        program: String,
        /// Why not.
        error: io::Error,
    },
    /// It ran, and did not do what it was to.
    #[error("{0}")]
    Failed(Failed),
    /// The kernel refused.
    #[error("{what}: {error}")]
    Kernel {
        /// What was attempted.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
    /// The kernel refused some of several.
    #[error("{}", .0.iter().map(|(name, error)| format!("{name}: {error}")).collect::<Vec<_>>().join(", "))]
    Some(Vec<(String, io::Error)>),
}

impl RemoveError {
    /// An error if there is some of several that the kernel refused.
    pub(super) fn of_some(refused: Vec<(String, io::Error)>) -> Result<(), Self> {
        if refused.is_empty() {
            Ok(())
        } else {
            Err(Self::Some(refused))
        }
    }
}

/// What a program says that failed.
#[derive(Debug, Error)]
#[error("`{program}` failed ({status}): {said}")]
pub(super) struct Failed {
    program: String,
    status: ExitStatus,
    said: String,
}

/// What a program printed, if it succeeded.
pub(super) fn printed(program: &str, output: &Output) -> Result<String, Failed> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Failed {
        program: program.to_owned(),
        status: output.status,
        said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
