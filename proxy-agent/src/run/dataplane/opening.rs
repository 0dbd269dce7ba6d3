//! Opens the dataplane, again and again where what stops it passes. Must not know what that is.

use std::time::Duration;

use proxy_backend::{OpenError, Surroundings, milliseconds};
use tokio::{task::block_in_place, time::sleep};

use super::Dataplane;
use crate::{
    backend::{choice::Choice, kind::BackendKind},
    config::Run,
    heart::Heart,
    run::RunError,
};

/// What is waited after the first failure; twice as long after each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// At most.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// With mode auto, the next backend is taken after so many: some 30 seconds. The one that was
/// chosen is tried again by the next start.
const MOST_TRIES: u32 = 6;

/// Opens the backend that is `chosen`. What passes by itself, as want of memory, is waited for.
pub async fn open(
    config: &Run,
    heart: &Heart,
    surroundings: &Surroundings,
    chosen: &(Choice, Vec<BackendKind>),
) -> Result<Dataplane, RunError> {
    let mut tries = 1;
    loop {
        let last_try = tries >= MOST_TRIES;
        heart.at("opening the backend");
        let opened = block_in_place(|| {
            Dataplane::open(config, surroundings.clone(), chosen.clone(), last_try)
        });
        let reason = match opened {
            Err(RunError::Open(OpenError::Later(reason))) => reason,
            opened => return opened,
        };
        let wait = wait_after(tries);
        tries += 1;
        tracing::error!(
            backend = chosen.0.backend,
            reason,
            retry_in_ms = milliseconds(wait),
            "backend not opened"
        );
        sleep(wait).await;
    }
}

fn wait_after(tries: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(tries.saturating_sub(1));
    FIRST_WAIT.saturating_mul(doubled).min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit() {
        let waits = [1, 2, 3, 5, 6, 40].map(|tries| wait_after(tries).as_secs());
        assert_eq!(waits, [1, 2, 4, 16, 30, 30]);
    }
}
