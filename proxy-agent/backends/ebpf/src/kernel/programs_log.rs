//! Debug lines of the kernel programs, written to the log.

use std::{convert::Infallible, io};

use aya_log::EbpfLogger;
use tokio::io::{Interest, unix::AsyncFd};

use super::{EbpfBackend, OpenError};

/// Has the lines of `backend`, which must have been opened so that it writes some, forwarded in the
/// background.
pub fn forward(backend: &mut EbpfBackend) -> Result<(), OpenError> {
    let logger = EbpfLogger::init(&mut backend.loaded.ebpf);
    let logger = logger
        .map_err(|error| OpenError::Other(format!("reading the kernel programs' log: {error}")))?;
    tokio::spawn(async {
        // Serving goes on without: these lines are there to look on, not to work.
        let Err(error) = follow(logger).await;
        tracing::error!(%error, "kernel programs' log lost; restart the agent to read it again");
    });
    Ok(())
}

/// Writes lines as they come, until dropped. Ends only with an error of the ring.
async fn follow(logger: EbpfLogger<&'static dyn log::Log>) -> io::Result<Infallible> {
    #[expect(
        unsafe_code,
        reason = "tokio cannot know that the logger owns its descriptor"
    )]
    // SAFETY: the logger owns the descriptor of its ring, never replaces it, and is dropped with
    // the `AsyncFd`.
    let logger = unsafe { AsyncFd::register_with_interest(logger, Interest::READABLE) };
    let mut logger = logger.map_err(|error| io::Error::other(error.to_string()))?;
    loop {
        let mut ready = logger.readable_mut().await?;
        ready.get_inner_mut().flush();
        ready.clear_ready();
    }
}
