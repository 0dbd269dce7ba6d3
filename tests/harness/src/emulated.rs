//! Virtual machines whose processors are emulated: everything takes many times as long there, and
//! what keeps a processor busy keeps all others waiting.

use std::{env, time::Duration};

/// Set to 1 where tests run on such a machine.
pub const VARIABLE: &str = "CULVERT_EMULATED";

/// How long a load pauses there, at least: less, and nobody else gets to do anything.
const PAUSE: Duration = Duration::from_millis(10);

/// Whether this machine is one.
pub fn is_emulated() -> bool {
    env::var(VARIABLE).is_ok_and(|value| value == "1")
}

/// How long a load pauses here, if it is to pause for `wanted`.
pub(crate) fn pause(wanted: Duration) -> Duration {
    if is_emulated() {
        wanted.max(PAUSE)
    } else {
        wanted
    }
}
