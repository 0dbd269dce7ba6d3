//! Tasks that a panic must not end: it would take away a part of the agent, and nobody would notice.
//! What nothing works without is none of them: that ends the agent, with a reason.

use std::time::Duration;

use tokio::time::sleep;

/// Before a task is begun again: one that panics at once must not keep the processor busy.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs what `make` makes until it returns by itself, and begins it again after each panic. `what`
/// is what the log calls it.
pub fn keep<F>(what: &'static str, mut make: impl FnMut() -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    tokio::spawn(async move {
        while let Err(error) = tokio::spawn(make()).await {
            if !error.is_panic() {
                // The runtime is going away, and this with it.
                return;
            }
            tracing::error!(part = what, "part of the agent panicked; it is restarted");
            sleep(PAUSE).await;
        }
    });
}

#[cfg(test)]
mod tests {
    use tokio::{sync::mpsc, time::timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_panics_is_begun_again_and_what_returns_is_not() {
        let (begun, mut begins) = mpsc::unbounded_channel();
        let mut number = 0;
        keep("a test", move || {
            number += 1;
            let (begun, number) = (begun.clone(), number);
            async move {
                begun.send(number).unwrap();
                assert!(number == 3, "as the test wants");
            }
        });
        let all = async {
            let mut all = Vec::new();
            while let Some(number) = begins.recv().await {
                all.push(number);
            }
            all
        };
        let all = timeout(Duration::from_mins(1), all).await;
        assert_eq!(all.expect("it should return"), [1, 2, 3]);
    }
}
