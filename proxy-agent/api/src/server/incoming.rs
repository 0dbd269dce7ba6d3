//! Connections as they come in: an accept that fails is waited out, never spun on, and one that
//! says nothing is closed after a while.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::mpsc,
    time::{Sleep, sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

#[cfg(feature = "tls")]
use super::tls::{self, Certificates};
use super::{
    caller::{Caller, Trust},
    doors::{Closed, Doors, Place},
    peer::Peer,
};

/// After an accept that failed: no descriptors are left, and none will be in the next microsecond.
const REST: Duration = Duration::from_millis(500);

/// From a connection to its first call. Clients call as soon as they are connected.
pub const FIRST_CALL: Duration = Duration::from_secs(10);

/// Where connections come from.
pub trait Accept: Send + 'static {
    type Io: Send + 'static;

    fn accept(&self) -> impl Future<Output = io::Result<(Self::Io, Peer)>> + Send;
}

impl Accept for UnixListener {
    type Io = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Peer)> {
        let (stream, _) = Self::accept(self).await?;
        let peer = Peer::User(stream.peer_cred()?.uid());
        Ok((stream, peer))
    }
}

impl Accept for TcpListener {
    type Io = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Peer)> {
        let (stream, from) = Self::accept(self).await?;
        // A change is a few small writes, each of which counts.
        stream.set_nodelay(true)?;
        Ok((stream, Peer::at(from.ip())))
    }
}

/// How a connection begins, and what it proves.
pub trait Greet<S>: Clone + Send + 'static {
    /// The connection to go on with; `None` if it is not let in.
    fn greet(&self, stream: S) -> impl Future<Output = Option<(Box<dyn Io>, Trust)>> + Send;
}

impl<S: Io> Greet<S> for Trust {
    async fn greet(&self, stream: S) -> Option<(Box<dyn Io>, Trust)> {
        Some((Box::new(stream), self.clone()))
    }
}

#[cfg(feature = "tls")]
impl Greet<TcpStream> for Arc<Certificates> {
    async fn greet(&self, stream: TcpStream) -> Option<(Box<dyn Io>, Trust)> {
        let stream = Certificates::greet(self, stream).await?;
        let names = tls::names(&stream);
        Some((Box::new(stream), Trust::Certificate(names)))
    }
}

/// A stream of bytes in both directions.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Io for S {}

/// A connection that counts as one until it is dropped.
pub struct Connection {
    stream: Box<dyn Io>,
    caller: Caller,
    place: Place,
    closed: Option<Closed>,
    /// Until when it must have been of use; `None` once it was.
    first_call: Option<Pin<Box<Sleep>>>,
}

/// Accepts until nobody takes what comes.
pub fn connections<L>(
    listener: L,
    greeting: impl Greet<L::Io> + Sync,
) -> ReceiverStream<io::Result<Connection>>
where
    L: Accept + Sync,
{
    let (sender, accepted) = mpsc::channel(1);
    let doors = Arc::<Doors>::default();
    tokio::spawn(async move {
        let accepting = async {
            loop {
                match listener.accept().await {
                    Ok((stream, peer)) => {
                        if let Some((place, closed)) = doors.enter(peer) {
                            let (greeting, sender) = (greeting.clone(), sender.clone());
                            // A client that takes its time keeps nobody else waiting.
                            tokio::spawn(async move {
                                let greeting = greeting.greet(stream);
                                let came = begin(greeting, peer, place, closed).await;
                                if let Some(connection) = came {
                                    sender.send(Ok(connection)).await.ok();
                                }
                            });
                        } else {
                            tracing::debug!(
                                ?peer,
                                "all connections that a peer may have are in use"
                            );
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a client of the node API could not be accepted");
                        sleep(REST).await;
                    }
                }
            }
        };
        tokio::select! {
            () = accepting => {}
            () = sender.closed() => {}
        }
    });
    ReceiverStream::new(accepted)
}

async fn begin(
    greeting: impl Future<Output = Option<(Box<dyn Io>, Trust)>>,
    peer: Peer,
    place: Place,
    mut closed: Closed,
) -> Option<Connection> {
    let first_call = Box::pin(sleep(FIRST_CALL));
    let greeted = tokio::select! {
        greeted = timeout(FIRST_CALL, greeting) => greeted.ok()?,
        _ = &mut closed => None,
    };
    let (stream, trust) = greeted?;
    Some(Connection {
        stream,
        caller: Caller::new(peer, trust, Arc::clone(&place.stay)),
        place,
        closed: Some(closed),
        first_call: Some(first_call),
    })
}

impl Connection {
    /// Whether it has to end, and why.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Option<io::Error> {
        if let Some(closed) = &mut self.closed
            && Pin::new(closed).poll(context).is_ready()
        {
            self.closed = None;
            let text = "another connection needs the place of this one, which no authenticated \
                        client has used";
            return Some(io::Error::new(io::ErrorKind::ConnectionAborted, text));
        }
        let limit = self.first_call.as_mut()?;
        if self.place.stay.was_used() {
            self.first_call = None;
            return None;
        }
        let late = limit.as_mut().poll(context).is_ready();
        late.then(|| io::Error::new(io::ErrorKind::TimedOut, "no call came"))
    }
}

impl Connected for Connection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(error) = self.poll_end(context) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};
    use tokio_stream::StreamExt as _;

    use super::*;

    /// Fails every other time. What it accepts is silent.
    struct Flaky(Arc<AtomicUsize>, mpsc::UnboundedSender<DuplexStream>);

    impl Accept for Flaky {
        type Io = DuplexStream;

        async fn accept(&self) -> io::Result<(DuplexStream, Peer)> {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                number if number % 2 == 1 => Err(io::Error::other("no descriptors")),
                _ => {
                    let (here, there) = duplex(8);
                    self.1.send(there).map_err(io::Error::other)?;
                    Ok((here, Peer::User(7)))
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_waited_out_and_who_says_nothing_is_closed() {
        let calls = Arc::new(AtomicUsize::new(0));
        let (sender, mut clients) = mpsc::unbounded_channel();
        let mut connections = connections(Flaky(Arc::clone(&calls), sender), Trust::Socket);
        let started = tokio::time::Instant::now();
        let mut next = async || connections.next().await.unwrap().unwrap();
        let (mut silent, mut used) = (next().await, next().await);
        assert!(started.elapsed() >= REST);
        assert!(calls.load(Ordering::Relaxed) >= 3);
        let came = tokio::time::Instant::now();
        used.connect_info().is_served(true);
        let error = silent.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(came.elapsed() <= FIRST_CALL);
        let quiet = timeout(FIRST_CALL * 10, used.read_u8()).await;
        assert!(quiet.is_err(), "it is of use: {quiet:?}");
        drop((clients.recv().await, clients.recv().await));
        assert_eq!(
            used.read_u8().await.unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}
