//! How long to wait before something that failed is retried. Pure: the caller has the clock, and
//! supplies random numbers.

use std::time::Duration;

/// Waits that double from failure to failure, up to a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// From `first` on, `longest` at most.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            failures: 0,
        }
    }

    /// The wait after the first failure.
    pub const fn first(&self) -> Duration {
        self.first
    }

    /// It failed: how long to wait.
    pub fn failed(&mut self) -> Duration {
        self.failed_after(self.first)
    }

    /// The same where the failure says how long to wait if it is the first one.
    pub fn failed_after(&mut self, first: Duration) -> Duration {
        let times = 2_u32.saturating_pow(self.failures);
        self.failures = self.failures.saturating_add(1);
        first.saturating_mul(times).min(self.longest)
    }

    /// It failed: how long to wait, from half as long to half as long again. `random` is from 0 to
    /// 1: many clients that lost the same thing must not all come back at once.
    pub fn failed_by_chance(&mut self, random: f64) -> Duration {
        self.failed().mul_f64(0.5 + random).min(self.longest)
    }

    /// It succeeded: starts over.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures in a row.
    pub const fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waits_double_to_a_limit_and_start_over_after_a_success() {
        let mut backoff = Backoff::new(SECOND, 5 * SECOND);
        for seconds in [1, 2, 4, 5, 5] {
            assert_eq!(backoff.failed(), SECOND * seconds);
        }
        assert_eq!(backoff.failures(), 5);
        backoff.reset();
        assert_eq!(backoff.failed(), SECOND);
        assert_eq!(backoff.failed_after(2 * SECOND), 4 * SECOND);
        backoff.failures = u32::MAX;
        assert_eq!(backoff.failed(), 5 * SECOND);
        assert_eq!(backoff.failed(), 5 * SECOND);
    }

    #[test]
    fn chance_spreads_the_waits_but_never_beyond_the_limit() {
        let backoff = Backoff::new(SECOND, 2 * SECOND);
        assert_eq!(backoff.clone().failed_by_chance(0.0), SECOND / 2);
        assert_eq!(backoff.clone().failed_by_chance(0.5), SECOND);
        let mut backoff = backoff;
        assert_eq!(backoff.failed_by_chance(1.0), 3 * SECOND / 2);
        assert_eq!(backoff.failed_by_chance(1.0), 2 * SECOND);
    }
}
