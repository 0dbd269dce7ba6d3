//! Durations, as the log shows them.

use std::time::Duration;

/// A duration as the log shows it: milliseconds with three decimals.
pub fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
