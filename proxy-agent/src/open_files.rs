//! How many files this process may have open at once. Connections, maps and programs are files, too.

use nix::{
    errno::Errno,
    sys::resource::{Resource, getrlimit, setrlimit},
};
use thiserror::Error;

/// What an agent needs that serves, and that many ask at the same time.
const LEAST: u64 = 512;

/// Why this process has too few files.
#[derive(Debug, Error)]
pub enum OpenFilesError {
    /// The kernel does not say.
    #[error("asking how many files may be open: {0}")]
    Unknown(Errno),
    /// Even the upper limit is too low.
    #[error(
        "this process may have {0} files open, and an agent needs {LEAST}: raise the limit \
         (LimitNOFILE= of a systemd unit, or `ulimit -Hn`)"
    )]
    TooFew(u64),
    /// The kernel refused.
    #[error("raising how many files may be open to {to}: {errno}")]
    NotRaised {
        /// The upper limit.
        to: u64,
        /// Why not.
        errno: Errno,
    },
}

/// Takes as many as there may be: the lower limit of most systems is for programs that use `select`,
/// which this one does not. An error if even the upper one is too low: at some moment nobody could
/// come in any more, and no program be loaded.
pub fn allow() -> Result<(), OpenFilesError> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(OpenFilesError::Unknown)?;
    if hard < LEAST {
        return Err(OpenFilesError::TooFew(hard));
    }
    if soft < hard {
        let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        raised.map_err(|errno| OpenFilesError::NotRaised { to: hard, errno })?;
    }
    Ok(())
}
