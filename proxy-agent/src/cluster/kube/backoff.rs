//! How long to wait before the next attempt. Pure: randomness comes from the caller.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// A server that says how long to wait is believed up to here: what it says may come from a load
/// balancer before it, and until the first list a node has no proxy.
const LONGEST_ASKED_FOR: Duration = Duration::from_mins(1);

/// Waits that double from attempt to attempt.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// From `first` on, `longest` at most.
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            next: first,
        }
    }

    /// Something worked: starts over.
    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }

    /// How long to wait now: half as much to half as much again by `random`, from 0 to 1, so
    /// that the nodes of a cluster do not all come back at once; never less than what the server
    /// asked for.
    pub(super) fn wait(&mut self, asked_for: Option<Duration>, random: f64) -> Duration {
        let wait = self.next.mul_f64(0.5 + random).min(self.longest);
        self.next = self.next.saturating_mul(2).min(self.longest);
        match asked_for {
            Some(asked_for) => asked_for.min(LONGEST_ASKED_FOR) + wait.min(self.first),
            None => wait,
        }
    }
}

/// A random number from 0 to 1. The keys of a hash map are random enough to spread waits.
pub(super) fn random() -> f64 {
    let number = RandomState::new().hash_one(0_u8) >> 32;
    let number = u32::try_from(number).expect("32 of 64 bits are left");
    f64::from(number) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waits_double_to_a_limit_and_start_over_after_a_success() {
        let mut backoff = Backoff::new(SECOND, 5 * SECOND);
        let mut waits = |count| -> Vec<_> {
            (0..count)
                .map(|_| backoff.wait(None, 0.5).as_secs())
                .collect()
        };
        assert_eq!(waits(5), [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.wait(None, 0.5), SECOND);
    }

    #[test]
    fn chance_spreads_the_waits_but_never_beyond_the_limit() {
        let mut backoff = Backoff::new(SECOND, 2 * SECOND);
        assert_eq!(backoff.wait(None, 0.0), SECOND / 2);
        assert_eq!(backoff.wait(None, 1.0), 2 * SECOND);
        assert!(
            (0..1000)
                .map(|_| random())
                .all(|random| (0.0..=1.0).contains(&random))
        );
        assert_ne!(random().to_bits(), random().to_bits());
    }

    #[test]
    fn the_server_may_ask_for_a_longer_wait() {
        let mut backoff = Backoff::new(SECOND, 2 * SECOND);
        let wait = backoff.wait(Some(20 * SECOND), 0.5);
        assert!((20 * SECOND..=21 * SECOND).contains(&wait), "{wait:?}");
        let wait = backoff.wait(Some(Duration::MAX), 0.5);
        assert!(wait <= LONGEST_ASKED_FOR + SECOND, "{wait:?}");
    }
}
