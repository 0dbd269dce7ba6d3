//! Opens the dataplane, again and again where what stops it passes. Must not know what that is.

use std::time::{Duration, Instant};

use proxy_backend::{OpenError, Surroundings, milliseconds};
use proxy_model::Backoff;
use tokio::{task::block_in_place, time::sleep};

use super::Dataplane;
use crate::{backend::choice::Chosen, config::Run, heart::Heart, run::RunError};

/// What is waited after the first failure; twice as long after each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// At most.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// With mode auto, the next backend is taken after so many: some 30 seconds. The one that was
/// chosen is tried again by the next start.
const MOST_TRIES: u32 = 6;

/// For so long after the start, a holder of what only one agent has may still be one that was killed: a
/// program that it was just starting has its descriptors until that begins.
const MOMENT: Duration = Duration::from_secs(1);
/// Between two looks at whether it has let go.
const LOOK: Duration = Duration::from_millis(20);

/// Opens the backend that is `chosen`. What passes by itself, as want of memory, is waited for.
pub async fn open(
    config: &Run,
    heart: &Heart,
    surroundings: &Surroundings,
    chosen: &Chosen,
) -> Result<Dataplane, RunError> {
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    let began = Instant::now();
    loop {
        let last_try = backoff.failures() + 1 >= MOST_TRIES;
        heart.at("opening the backend");
        let opened = block_in_place(|| {
            Dataplane::open(config, surroundings.clone(), chosen.clone(), last_try)
        });
        let reason = match opened {
            Err(RunError::Open(OpenError::Later(reason))) => reason,
            Err(RunError::Open(error @ (OpenError::Held { .. } | OpenError::Locked(_))))
                if began.elapsed() < MOMENT =>
            {
                tracing::debug!(%error, "waiting for another agent to end");
                sleep(LOOK).await;
                continue;
            }
            opened => return opened,
        };
        let wait = backoff.failed();
        tracing::error!(
            backend = chosen.choice.backend,
            reason,
            retry_in_ms = milliseconds(wait),
            "backend not opened"
        );
        sleep(wait).await;
    }
}
