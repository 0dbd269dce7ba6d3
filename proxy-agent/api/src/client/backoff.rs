//! How long to wait before the next attempt.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);

/// Twice as long each time, up to a limit, with chance in it: clients of a brain that comes back
/// must not all come at once.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// After a failure: how long to wait.
    pub fn next(&mut self) -> Duration {
        let longest = SHORTEST
            .saturating_mul(2_u32.saturating_pow(self.failures))
            .min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        // Each hasher has keys of its own.
        let chance = RandomState::new().hash_one(self.failures) % 512;
        let chance = u32::try_from(chance).unwrap_or_default();
        longest / 2 + longest / 1024 * chance
    }

    /// After a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit_and_begin_anew() {
        let mut backoff = Backoff::default();
        for longest in [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let longest = Duration::from_millis(longest);
            let wait = backoff.next();
            assert!(
                longest / 2 <= wait && wait <= longest,
                "{wait:?} of {longest:?}"
            );
        }
        backoff.reset();
        assert!(backoff.next() <= SHORTEST);
        backoff.failures = u32::MAX;
        assert!(backoff.next() <= LONGEST);
    }
}
