//! What clients have begun to ask and not finished. It is kept in memory until it is whole, so it is
//! bounded: in bytes, in all and of one peer, and in time.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use http_body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::{
    Status,
    body::Body,
    codegen::{Bytes, http::Request},
};

use super::{caller::Caller, peer::Peer};

/// From the beginning of a call to the end of its request. Clients send it in one piece.
const WHOLE: Duration = Duration::from_secs(10);
/// What a call takes besides the bytes of its request, about.
const CALL: usize = 8 << 10;
/// Bytes of all requests that are not whole. A report has 2 MiB at most.
const MOST: usize = 64 << 20;
/// Those of one peer.
const SHARE: usize = MOST / 2;

/// Bytes of requests that are not whole, by whom they are of.
#[derive(Debug, Clone, Default)]
pub struct Unfinished(Arc<Mutex<HashMap<Peer, usize>>>);

impl Unfinished {
    /// The same request, within these bounds.
    pub fn bounded(&self, request: Request<Body>) -> Request<Body> {
        let peer = request
            .extensions()
            .get::<Caller>()
            .map(|caller| caller.peer);
        // Without a caller the call is refused anyway.
        let Some(peer) = peer else {
            return request;
        };
        let mut held = Held {
            all: self.clone(),
            peer,
            bytes: 0,
        };
        let fits = held.grow(CALL);
        request.map(|body| {
            Body::new(Bounded {
                body,
                fits,
                held,
                end: Box::pin(sleep(WHOLE)),
            })
        })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Peer, usize>> {
        // Each change is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one request takes, until this is dropped.
#[derive(Debug)]
struct Held {
    all: Unfinished,
    peer: Peer,
    bytes: usize,
}

impl Held {
    /// So many bytes more. `false` if that is too much.
    fn grow(&mut self, bytes: usize) -> bool {
        let mut all = self.all.all();
        let sum: usize = all.values().sum();
        let own = all.entry(self.peer).or_default();
        let fits = sum + bytes <= MOST && *own + bytes <= SHARE;
        if fits {
            *own += bytes;
            self.bytes += bytes;
        }
        fits
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut all = self.all.all();
        if let Some(own) = all.get_mut(&self.peer) {
            *own -= self.bytes;
            if *own == 0 {
                all.remove(&self.peer);
            }
        }
    }
}

/// A request's body within bounds.
struct Bounded {
    body: Body,
    /// Whether there was room for it at all.
    fits: bool,
    held: Held,
    end: Pin<Box<Sleep>>,
}

impl http_body::Body for Bounded {
    type Data = <Body as http_body::Body>::Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Status>>> {
        let Poll::Ready(next) = Pin::new(&mut self.body).poll_frame(context) else {
            return self.end.as_mut().poll(context).map(|()| {
                let text = format!("the request was not complete after {} s", WHOLE.as_secs());
                Some(Err(Status::deadline_exceeded(text)))
            });
        };
        let bytes = match &next {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        if !(self.fits && self.held.grow(bytes)) {
            return Poll::Ready(Some(Err(Status::resource_exhausted(format!(
                "incomplete requests already take {MOST} bytes, or {SHARE} of this client's user \
                 or host; look for a client that begins calls and never ends them"
            )))));
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::poll_fn, net::Ipv4Addr};

    use http_body::Body as _;

    use tokio::time::Instant;
    use tonic::Code;

    use super::{super::caller::Trust, *};

    /// Brings what it has, and never ends.
    struct Endless(Vec<Bytes>);

    impl http_body::Body for Endless {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.0.pop() {
                Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
                None => Poll::Pending,
            }
        }
    }

    /// A call from `peer` that brings so many pieces of these bytes.
    fn call(all: &Unfinished, peer: Peer, pieces: usize, bytes: usize) -> Body {
        let caller = Caller::new(peer, Trust::Nobody, Arc::default());
        let piece = Bytes::from(vec![0; bytes]);
        let mut request = Request::new(Body::new(Endless(vec![piece; pieces])));
        request.extensions_mut().insert(caller);
        all.bounded(request).into_body()
    }

    /// How many bytes came, and why no more.
    async fn read(body: &mut Body) -> (usize, Code) {
        let mut came = 0;
        loop {
            match poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await {
                Some(Ok(frame)) => came += frame.data_ref().map_or(0, Bytes::len),
                Some(Err(status)) => return (came, status.code()),
                None => return (came, Code::Ok),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_never_ends_is_given_up() {
        let started = Instant::now();
        let mut body = call(&Unfinished::default(), Peer::User(7), 2, 3);
        assert_eq!(read(&mut body).await, (6, Code::DeadlineExceeded));
        assert_eq!(started.elapsed().as_secs(), WHOLE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn one_peer_takes_half_of_all_and_gives_it_back() {
        let all = Unfinished::default();
        let (pieces, piece) = (8, (SHARE - CALL) / 8);
        let mut first = call(&all, Peer::User(7), pieces, piece);
        assert_eq!(
            read(&mut first).await,
            (pieces * piece, Code::DeadlineExceeded)
        );
        let mut more = call(&all, Peer::User(7), 1, 1);
        assert_eq!(read(&mut more).await, (0, Code::ResourceExhausted));
        let host = Peer::at(Ipv4Addr::LOCALHOST.into());
        let mut other = call(&all, host, pieces, piece);
        assert_eq!(
            read(&mut other).await,
            (pieces * piece, Code::DeadlineExceeded)
        );
        let mut third = call(&all, Peer::User(8), 1, 1);
        assert_eq!(read(&mut third).await, (0, Code::ResourceExhausted));
        drop((first, more));
        let mut again = call(&all, Peer::User(7), pieces, piece);
        assert_eq!(
            read(&mut again).await,
            (pieces * piece, Code::DeadlineExceeded)
        );
        drop((other, third, again));
        assert!(all.all().is_empty());
    }
}
