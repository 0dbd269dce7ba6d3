//! How long an answer is waited for that goes on and on. Pieces that say nothing, as empty lines,
//! prove that a server is there, and not that it tells what happens.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::cluster::kube::{failure::Failure, servers::Reply};

/// An object may come slowly: as many times the limit as long as something comes of it.
const FOR_ONE: u32 = 4;

/// What came of an answer, and when.
#[derive(Debug)]
pub(super) struct Patience {
    limit: Duration,
    /// An object or a bookmark was complete.
    told: Instant,
    /// A part of one came.
    heard: Instant,
}

impl Patience {
    /// Up to `limit` without a word, from now on.
    pub(super) fn new(limit: Duration) -> Self {
        let now = Instant::now();
        Self {
            limit,
            told: now,
            heard: now,
        }
    }

    /// The next piece of `reply`; a failure once patience has ended.
    pub(super) async fn next(&mut self, reply: &mut Reply) -> Result<Option<Bytes>, Failure> {
        let silent = Failure::Silent(self.limit);
        let left = self.left();
        if left.is_zero() {
            return Err(silent);
        }
        let piece = reply.next(left).await;
        let piece = piece.map_err(|failure| match failure {
            Failure::Silent(_) => silent,
            other => other,
        })?;
        self.hear(piece.as_deref().unwrap_or_default());
        Ok(piece)
    }

    fn hear(&mut self, piece: &[u8]) {
        if !piece.trim_ascii().is_empty() {
            self.heard = Instant::now();
        }
    }

    /// Something is complete.
    pub(super) fn told(&mut self) {
        self.told = Instant::now();
    }

    fn left(&self) -> Duration {
        let end = self.heard + self.limit;
        let end = end.min(self.told + self.limit.saturating_mul(FOR_ONE));
        end.saturating_duration_since(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn empty_pieces_are_no_word_and_parts_are_one_for_a_while() {
        let mut patience = Patience::new(10 * SECOND);
        for _ in 0..10 {
            assert!(!patience.left().is_zero());
            patience.hear(b"\n \r\n");
            advance(SECOND).await;
        }
        assert!(patience.left().is_zero(), "nothing was said");
        let mut patience = Patience::new(10 * SECOND);
        for second in 0..40 {
            assert!(!patience.left().is_zero(), "{second}");
            patience.hear(b"{");
            advance(SECOND).await;
        }
        assert!(patience.left().is_zero(), "nothing was ever complete");
        patience.hear(b"}");
        patience.told();
        assert_eq!(patience.left(), 10 * SECOND);
    }
}
