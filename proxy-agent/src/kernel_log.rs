//! Debug lines of the kernel programs, written to the log.

use std::{convert::Infallible, io};

use aya_log::EbpfLogger;
use tokio::io::{Interest, unix::AsyncFd};

/// Writes lines as they come, until dropped. Ends only with an error of the ring.
pub async fn forward(logger: EbpfLogger<&'static dyn log::Log>) -> io::Result<Infallible> {
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
