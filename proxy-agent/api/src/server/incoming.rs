//! Connections as they come in: so many at a time, and an accept that fails is waited out, never
//! spun on.

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
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::sleep,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

/// Connections at a time, those that never say a word included. More wait in the kernel's queue.
const MOST: usize = 1_024;

/// After an accept that failed: no descriptors are left, and none will be in the next microsecond.
const REST: Duration = Duration::from_millis(500);

/// Where connections come from.
pub trait Accept: Send + 'static {
    type Io: Send + 'static;

    fn accept(&self) -> impl Future<Output = io::Result<Self::Io>> + Send;
}

impl Accept for UnixListener {
    type Io = UnixStream;

    async fn accept(&self) -> io::Result<UnixStream> {
        Ok(Self::accept(self).await?.0)
    }
}

impl Accept for TcpListener {
    type Io = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        let (stream, _) = Self::accept(self).await?;
        // A change is a few small writes, each of which counts.
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// A connection that counts as one until it is dropped.
#[derive(Debug)]
pub struct Counted<S> {
    stream: S,
    _place: OwnedSemaphorePermit,
}

/// Accepts until nobody takes what comes.
pub fn connections<L: Accept + Sync>(listener: L) -> ReceiverStream<io::Result<Counted<L::Io>>> {
    let (sender, accepted) = mpsc::channel(1);
    let places = Arc::new(Semaphore::new(MOST));
    tokio::spawn(async move {
        let accepting = async {
            loop {
                let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                    return;
                };
                match listener.accept().await {
                    Ok(stream) => {
                        let counted = Counted {
                            stream,
                            _place: place,
                        };
                        if sender.send(Ok(counted)).await.is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a client of the node API could not be let in");
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

impl<S: Connected> Connected for Counted<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
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

    use tokio_stream::StreamExt as _;

    use super::*;

    /// Fails every other time.
    struct Flaky(Arc<AtomicUsize>);

    impl Accept for Flaky {
        type Io = usize;

        async fn accept(&self) -> io::Result<usize> {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                number if number % 2 == 1 => Err(io::Error::other("no descriptors")),
                number => Ok(number),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_let_in_and_failures_are_waited_out() {
        let calls = Arc::new(AtomicUsize::new(0));
        let mut connections = connections(Flaky(Arc::clone(&calls)));
        let mut open = Vec::new();
        while open.len() < MOST {
            open.push(connections.next().await.unwrap().unwrap());
        }
        let started = tokio::time::Instant::now();
        let more = tokio::time::timeout(REST * 10, connections.next()).await;
        assert!(more.is_err(), "{more:?}");
        assert!(started.elapsed() >= REST);
        assert_eq!(calls.load(Ordering::Relaxed), 2 * MOST - 1);
        open.pop();
        assert!(connections.next().await.is_some());
    }
}
