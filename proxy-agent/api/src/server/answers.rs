//! What a connection takes from its feed: parts by the handful, each made a message only when the
//! connection asks for it. A message at a time costs a wake-up and a frame for every few of them.

use std::{
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll, ready},
    vec,
};

use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;

/// Where a feed puts parts.
pub type Sender<P> = mpsc::Sender<Vec<P>>;

/// The messages `M` of one call, from parts `P`.
#[derive(Debug)]
pub struct Answers<P, M> {
    waiting: mpsc::Receiver<Vec<P>>,
    taking: vec::IntoIter<P>,
    message: PhantomData<fn() -> M>,
}

/// A feed's end and the connection's. One handful waits, and no more: what waits can no longer
/// coalesce.
pub fn channel<P, M>() -> (Sender<P>, Answers<P, M>) {
    let (sender, waiting) = mpsc::channel(1);
    let answers = Answers {
        waiting,
        taking: Vec::new().into_iter(),
        message: PhantomData,
    };
    (sender, answers)
}

impl<P: Into<M> + Unpin, M> Stream for Answers<P, M> {
    type Item = Result<M, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(part) = self.taking.next() {
                return Poll::Ready(Some(Ok(part.into())));
            }
            // A client without changes holds no memory for them.
            self.taking = Vec::new().into_iter();
            match ready!(self.waiting.poll_recv(context)) {
                Some(parts) => self.taking = parts.into_iter(),
                None => return Poll::Ready(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn parts_come_one_by_one_in_their_order_until_the_feed_ends() {
        let (sender, mut answers) = channel::<u8, u32>();
        tokio::spawn(async move {
            for parts in [vec![1, 2], vec![], vec![3]] {
                sender.send(parts).await.unwrap();
            }
        });
        let mut came = Vec::new();
        while let Some(message) = answers.next().await {
            came.push(message.unwrap());
        }
        assert_eq!(came, [1, 2, 3]);
    }

    #[tokio::test]
    async fn one_handful_waits_beside_the_one_that_is_taken() {
        let (sender, mut answers) = channel::<u8, u32>();
        sender.try_send(vec![1, 2]).unwrap();
        assert!(sender.try_send(vec![3]).is_err());
        assert_eq!(answers.next().await.unwrap().unwrap(), 1);
        sender.try_send(vec![3]).unwrap();
        assert!(sender.try_send(vec![4]).is_err());
    }
}
