//! How long to wait before the next attempt. Pure: randomness comes from the caller.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use proxy_model::Backoff;

/// A server that says how long to wait is believed up to here: what it says may come from a load
/// balancer before it, and until the first list a node has no proxy.
const LONGEST_ASKED_FOR: Duration = Duration::from_mins(1);

/// How long to wait after one more failure of `backoff`: by chance, so that the nodes of a cluster do
/// not all come back at once; never less than what the server asked for.
pub(super) fn wait(backoff: &mut Backoff, asked_for: Option<Duration>, random: f64) -> Duration {
    let first = backoff.first();
    let wait = backoff.failed_by_chance(random);
    match asked_for {
        Some(asked_for) => asked_for.min(LONGEST_ASKED_FOR) + wait.min(first),
        None => wait,
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
    fn chance_is_from_nothing_to_one() {
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
        let wait = super::wait(&mut backoff, Some(20 * SECOND), 0.5);
        assert!((20 * SECOND..=21 * SECOND).contains(&wait), "{wait:?}");
        let wait = super::wait(&mut backoff, Some(Duration::MAX), 0.5);
        assert!(wait <= LONGEST_ASKED_FOR + SECOND, "{wait:?}");
    }
}
