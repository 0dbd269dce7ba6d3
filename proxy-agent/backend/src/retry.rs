//! When to retry what failed: later each time, up to a limit. Pure: the caller has the clock.

use std::time::{Duration, Instant};

use proxy_model::Backoff;

/// After the first failure.
const FIRST: Duration = Duration::from_secs(1);
/// Between attempts at most.
const LONGEST: Duration = Duration::from_mins(1);

/// Something that is retried until it is done.
#[derive(Debug)]
pub struct Retry {
    /// When the next attempt is due, if one failed.
    due: Option<Instant>,
    backoff: Backoff,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            due: None,
            backoff: Backoff::new(FIRST, LONGEST),
        }
    }
}

impl Retry {
    /// Whether an attempt is due. Always before the first.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| now >= due)
    }

    /// Records the result of an attempt.
    pub fn tried(&mut self, done: bool, now: Instant) {
        if done {
            *self = Self::default();
        } else {
            self.due = Some(now + self.backoff.failed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_put_off_further_each_time_and_at_once_after_a_success() {
        let mut now = Instant::now();
        let mut retry = Retry::default();
        assert!(retry.is_due(now));
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            retry.tried(false, now);
            let (wait, nearly) = (
                Duration::from_secs(seconds),
                Duration::from_millis(seconds * 1000 - 1),
            );
            assert!(!retry.is_due(now + nearly), "{wait:?}");
            now += wait;
            assert!(retry.is_due(now), "{wait:?}");
        }
        retry.tried(true, now);
        assert!(retry.is_due(now));
        retry.tried(false, now);
        assert!(retry.is_due(now + FIRST));
    }
}
