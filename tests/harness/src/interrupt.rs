//! Being asked to stop (Ctrl-C, SIGTERM, SIGHUP) without dying on the spot, so that what was
//! made can be taken down in order.
//!
//! For the programs of this package that make a world and are not tests.

use std::{cell::Cell, os::fd::AsFd as _, time::Duration};

use anyhow::{Context as _, Result};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};

/// The signals that ask a program to stop, held back for the rest of its life.
#[derive(Debug)]
pub struct Interrupts {
    arrivals: SignalFd,
    arrived: Cell<Option<Signal>>,
}

impl Interrupts {
    /// Holds them back. To be called before any thread is started: threads inherit it, children
    /// do not (the standard library gives them a clear mask).
    pub fn hold_back() -> Result<Self> {
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .collect();
        signals.thread_block().context("cannot hold back signals")?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let arrivals =
            SignalFd::with_flags(&signals, flags).context("cannot listen for signals")?;
        Ok(Self {
            arrivals,
            arrived: Cell::new(None),
        })
    }

    /// The first signal that has arrived, if any.
    pub fn arrived(&self) -> Option<Signal> {
        if self.arrived.get().is_none() {
            // Reading never fails for want of a signal: it gives none.
            let signal = self.arrivals.read_signal().ok().flatten();
            let number = signal.and_then(|info| i32::try_from(info.ssi_signo).ok());
            self.arrived
                .set(number.and_then(|number| Signal::try_from(number).ok()));
        }
        self.arrived.get()
    }

    /// Waits for a signal, at most `limit`.
    pub fn wait(&self, limit: Duration) -> Option<Signal> {
        if self.arrived().is_none() {
            let mut fds = [PollFd::new(self.arrivals.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
            // A failed poll only means that the caller looks again sooner.
            poll(&mut fds, timeout).ok();
        }
        self.arrived()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_seen_and_kills_nobody() {
        // On a thread of its own: signals stay held back on the one that asks for it.
        std::thread::spawn(|| {
            let interrupts = Interrupts::hold_back().unwrap();
            assert_eq!(interrupts.arrived(), None);
            // To this thread alone: the other threads of this process do not hold it back.
            let thread = nix::sys::pthread::pthread_self();
            nix::sys::pthread::pthread_kill(thread, Signal::SIGTERM).unwrap();
            let limit = Duration::from_mins(1);
            assert_eq!(interrupts.wait(limit), Some(Signal::SIGTERM));
            assert_eq!(interrupts.arrived(), Some(Signal::SIGTERM), "it stays");
        })
        .join()
        .unwrap();
    }
}
