//! Bodies that are written piece by piece, and that can break off.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::Frame;
use tokio::{sync::mpsc, task::yield_now, time::sleep};

use super::seen::Seen;

/// What hyper sends.
pub(super) type Body = BoxBody<Bytes, io::Error>;

/// How many bytes are handed over at once: enough to keep a connection busy.
const PIECE: usize = 64 * 1024;

/// The client is gone.
#[derive(Debug)]
pub(super) struct Gone;

/// A body in one piece.
pub(super) fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

/// The writing end of a body. The body ends when it is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    pieces: mpsc::Sender<io::Result<Bytes>>,
    slow: Option<(usize, Duration)>,
    seen: Arc<Seen>,
}

impl Writer {
    /// A body and its writing end.
    pub(super) fn new(slow: Option<(usize, Duration)>, seen: Arc<Seen>) -> (Self, Body) {
        // One piece only: when there is room for the next one, hyper has taken the last one.
        let (pieces, receiver) = mpsc::channel(1);
        let writer = Self { pieces, slow, seen };
        let frames = received(receiver).map(|piece| piece.map(Frame::data));
        (writer, BodyExt::boxed(StreamBody::new(frames)))
    }

    /// Sends `bytes`.
    pub(super) async fn send(&self, mut bytes: Bytes) -> Result<(), Gone> {
        let (size, pause) = match self.slow {
            Some((size, pause)) => (size.max(1), Some(pause)),
            None => (PIECE, None),
        };
        while !bytes.is_empty() {
            let piece = bytes.split_to(size.min(bytes.len()));
            self.seen.sent(piece.len());
            self.pieces.send(Ok(piece)).await.map_err(|_| Gone)?;
            match pause {
                // A pause takes a millisecond at least.
                Some(Duration::ZERO) => yield_now().await,
                Some(pause) => sleep(pause).await,
                None => {}
            }
        }
        Ok(())
    }

    /// Breaks the connection off after all that was sent.
    pub(super) async fn cut(self) {
        // There is room only when the last piece was taken, and hyper flushes what it took
        // before it asks for more.
        let error = io::Error::new(io::ErrorKind::ConnectionAborted, "cut on command");
        // A client that is gone has nothing left to be cut off from.
        self.pieces.send(Err(error)).await.ok();
    }

    /// Waits until the client is gone.
    pub(super) async fn closed(&self) {
        self.pieces.closed().await;
    }
}

fn received<T: Send>(receiver: mpsc::Receiver<T>) -> impl Stream<Item = T> + Send {
    stream::unfold(receiver, |mut receiver| async {
        let piece = receiver.recv().await?;
        Some((piece, receiver))
    })
}
