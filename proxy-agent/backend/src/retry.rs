//! When to try again what failed: later each time, up to a bound. Pure: whoever asks has the clock.

use std::time::{Duration, Instant};

/// After the first failure.
const FIRST: Duration = Duration::from_secs(1);
/// Between attempts at most.
const LONGEST: Duration = Duration::from_mins(1);

/// Something that is tried again until it is done.
#[derive(Debug, Default)]
pub struct Retry {
    /// When the next attempt is due, and how long that was put off.
    put_off: Option<(Instant, Duration)>,
}

impl Retry {
    /// Whether an attempt is due. Always before the first.
    pub fn is_due(&self, now: Instant) -> bool {
        self.put_off.is_none_or(|(due, _)| now >= due)
    }

    /// Keeps what became of an attempt.
    pub fn tried(&mut self, done: bool, now: Instant) {
        let wait = match self.put_off {
            _ if done => {
                self.put_off = None;
                return;
            }
            None => FIRST,
            Some((_, wait)) => (wait * 2).min(LONGEST),
        };
        self.put_off = Some((now + wait, wait));
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
