//! What may hang, and must not hold up whoever asks for it.

use std::{sync::mpsc::channel, thread, time::Duration};

/// Does `work` on a thread of its own and waits for it, no longer than `limit`. Returns what came of
/// it; `None` if it took longer, or panicked, or there was no thread to be had. What takes longer
/// goes on, until the process ends.
pub fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, wait) = channel();
    let thread = thread::Builder::new().name("bounded".to_owned());
    thread
        .spawn(move || {
            // Nobody may be waiting any more.
            drop(done.send(work()));
        })
        .ok()?;
    wait.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_is_answered_and_what_hangs_is_left() {
        let long = Duration::from_mins(1);
        assert_eq!(within(long, || 7), Some(7));
        let (_held, hangs) = channel::<()>();
        let done = within(Duration::from_millis(1), move || hangs.recv().ok());
        assert_eq!(done, None, "it is held");
        assert_eq!(
            within(long, || panic!("told by the test itself")),
            None::<()>
        );
    }
}
