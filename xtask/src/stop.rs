//! Being asked to stop (Ctrl-C, SIGTERM, SIGHUP) without dying on the spot, so that what was
//! started can be ended in order.

use std::fmt;

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The error of work that somebody asked to stop. Nothing more should be started after it.
#[derive(Debug)]
pub(crate) struct Stopped(pub(crate) Signal);

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stopped by {}", self.0)
    }
}

impl std::error::Error for Stopped {}

/// The signals that ask a program to stop, held back while this value lives.
///
/// Only the calling thread holds them back, with the threads it starts afterwards. Children do
/// not: the standard library gives them a clear mask.
pub(crate) struct StopSignals {
    arrivals: SignalFd,
    before: SigSet,
}

impl StopSignals {
    /// Starts holding them back.
    pub(crate) fn block() -> Result<Self> {
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .collect();
        let before = SigSet::thread_get_mask().context("reading the signal mask")?;
        signals.thread_block().context("holding back signals")?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let arrivals = SignalFd::with_flags(&signals, flags).context("listening for signals")?;
        Ok(Self { arrivals, before })
    }

    /// The signal that has arrived, if any.
    pub(crate) fn pending(&self) -> Result<Option<Signal>> {
        let arrived = self.arrivals.read_signal().context("reading a signal")?;
        let number = arrived.and_then(|info| i32::try_from(info.ssi_signo).ok());
        Ok(number.and_then(|number| Signal::try_from(number).ok()))
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        if let Err(error) = self.before.thread_set_mask() {
            eprintln!("restoring the signal mask: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_seen_and_kills_nobody() {
        let stop = StopSignals::block().unwrap();
        assert_eq!(stop.pending().unwrap(), None);
        // To this thread alone: the other tests of this process do not hold it back.
        let thread = nix::sys::pthread::pthread_self();
        nix::sys::pthread::pthread_kill(thread, Signal::SIGTERM).unwrap();
        assert_eq!(stop.pending().unwrap(), Some(Signal::SIGTERM));
        assert_eq!(stop.pending().unwrap(), None);
    }
}
