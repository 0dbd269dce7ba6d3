//! How long to wait before the next attempt to reach a brain.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use proxy_model::Backoff;

/// Of a client of a brain: one that comes back must not have all of them at once.
pub const fn backoff() -> Backoff {
    Backoff::new(Duration::from_millis(50), Duration::from_secs(5))
}

/// A random number from 0 to 1. Each hasher has keys of its own.
pub fn random() -> f64 {
    let number = RandomState::new().hash_one(0_u8) >> 32;
    let number = u32::try_from(number).expect("32 of 64 bits are left");
    f64::from(number) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_spread_by_chance() {
        let mut numbers = (0..1000).map(|_| random());
        assert!(numbers.all(|random| (0.0..=1.0).contains(&random)));
        assert_ne!(random().to_bits(), random().to_bits());
        let wait = backoff().failed_by_chance(random());
        assert!((25..=75).contains(&wait.as_millis()), "{wait:?}");
    }
}
