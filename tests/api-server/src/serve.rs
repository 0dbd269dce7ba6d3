//! One server's thread: listens, accepts, and can refuse, stall and drop on command.
//!
//! It has a runtime of its own, so that synchronous tests can use it, and it can live in another
//! network namespace.

use std::{
    net::SocketAddr,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Arc, mpsc as blocking},
    thread::{self, JoinHandle},
};

use anyhow::{Context as _, Result, anyhow};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use nix::sched::{CloneFlags, setns};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket, TcpStream},
    runtime,
    sync::mpsc,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use super::{
    answer::{Peer, Responder, answer},
    tls::Authority,
};

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1024;

/// What a server does with clients that connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// Serves them.
    Open,
    /// Refuses them: nobody listens, and the port stays ours.
    Closed,
    /// Lets them connect and takes no notice.
    Stalled,
}

enum Control {
    Door(Door),
    Drop,
}

/// A running server.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) address: SocketAddr,
    controls: Option<mpsc::UnboundedSender<(Control, blocking::Sender<Result<()>>)>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Starts one at `address`, in the network namespace `netns`.
    pub(super) fn start(
        address: SocketAddr,
        netns: Option<OwnedFd>,
        authority: Option<Arc<Authority>>,
        responder: Arc<Responder>,
    ) -> Result<Self> {
        let (controls, receiver) = mpsc::unbounded_channel();
        let (started, start) = blocking::channel();
        let thread = thread::Builder::new()
            .name("api-server".to_owned())
            .spawn(move || {
                let runtime = prepare(netns.as_ref());
                let runtime = match runtime {
                    Ok(runtime) => runtime,
                    Err(error) => return drop(started.send(Err(error))),
                };
                runtime.block_on(async {
                    match Listening::bind(address, authority, responder) {
                        Ok(listening) => {
                            let sent = started.send(Ok(listening.address));
                            if sent.is_ok() {
                                listening.run(receiver).await;
                            }
                        }
                        Err(error) => drop(started.send(Err(error))),
                    }
                });
            })
            .context("cannot start a thread for the API server")?;
        let address = start
            .recv()
            .map_err(|_| anyhow!("the thread of the API server panicked"))??;
        Ok(Self {
            address,
            controls: Some(controls),
            thread: Some(thread),
        })
    }

    /// Changes what happens to new connections; returns when it is so.
    pub(super) fn door(&self, door: Door) -> Result<()> {
        self.control(Control::Door(door))
    }

    /// Drops every connection; returns when they are closed.
    pub(super) fn drop_connections(&self) -> Result<()> {
        self.control(Control::Drop)
    }

    fn control(&self, control: Control) -> Result<()> {
        let (done, wait) = blocking::channel();
        let controls = self.controls.as_ref();
        let controls = controls.context("the API server has ended")?;
        controls
            .send((control, done))
            .map_err(|_| anyhow!("the thread of the API server ended"))?;
        wait.recv().context("the thread of the API server ended")?
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.controls = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !thread::panicking()
        {
            panic!("the thread of the API server panicked");
        }
    }
}

fn prepare(netns: Option<&OwnedFd>) -> Result<runtime::Runtime> {
    if let Some(netns) = netns {
        setns(netns.as_fd(), CloneFlags::CLONE_NEWNET)
            .context("cannot enter a network namespace (root is needed)")?;
    }
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime for the API server")
}

struct Listening {
    address: SocketAddr,
    /// Bound and never listening: it keeps the port while the door is closed.
    _port: TcpSocket,
    listener: Option<TcpListener>,
    accepting: bool,
    acceptor: Option<TlsAcceptor>,
    authority: Option<Arc<Authority>>,
    responder: Arc<Responder>,
    connections: JoinSet<()>,
}

impl Listening {
    fn bind(
        address: SocketAddr,
        authority: Option<Arc<Authority>>,
        responder: Arc<Responder>,
    ) -> Result<Self> {
        let port = bound(address)?;
        let address = port.local_addr()?;
        let acceptor = match &authority {
            Some(authority) => Some(authority.acceptor(address.ip())?),
            None => None,
        };
        Ok(Self {
            address,
            _port: port,
            listener: Some(bound(address)?.listen(BACKLOG)?),
            accepting: true,
            acceptor,
            authority,
            responder,
            connections: JoinSet::new(),
        })
    }

    async fn run(
        mut self,
        mut controls: mpsc::UnboundedReceiver<(Control, blocking::Sender<Result<()>>)>,
    ) {
        loop {
            let listener = self.listener.as_ref().filter(|_| self.accepting);
            tokio::select! {
                biased;
                control = controls.recv() => {
                    let Some((control, done)) = control else { return };
                    let result = self.obey(control).await;
                    // Whoever asked may have stopped to wait.
                    done.send(result).ok();
                }
                Some(accepted) = accept(listener) => self.serve(accepted),
                Some(_) = self.connections.join_next(), if !self.connections.is_empty() => {}
            }
        }
    }

    async fn obey(&mut self, control: Control) -> Result<()> {
        match control {
            Control::Drop => self.connections.shutdown().await,
            Control::Door(Door::Closed) => self.listener = None,
            Control::Door(door) => {
                self.accepting = door == Door::Open;
                if self.listener.is_none() {
                    self.listener = Some(bound(self.address)?.listen(BACKLOG)?);
                }
            }
        }
        Ok(())
    }

    fn serve(&mut self, stream: TcpStream) {
        // Events must not wait for each other. It fails only for a connection that is gone.
        stream.set_nodelay(true).ok();
        let responder = Arc::clone(&self.responder);
        let tls = self.acceptor.clone().zip(self.authority.clone());
        self.connections.spawn(async move {
            let number = responder.connected();
            // A connection that fails, by the client or by a fault, is what is tested here.
            match tls {
                None => drop(speak(stream, number.peer(None), &responder).await),
                Some((acceptor, authority)) => {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let certificates = stream.get_ref().1.peer_certificates();
                    let certificate = certificates.and_then(<[_]>::first);
                    let name = certificate.and_then(|own| authority.name_of(own));
                    drop(speak(stream, number.peer(name), &responder).await);
                }
            }
        });
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: Peer,
    responder: &Arc<Responder>,
) -> hyper::Result<()> {
    let service = service_fn(|request| answer(Arc::clone(responder), peer.clone(), request));
    http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await
}

/// The next connection; never ends without a listener. `None` is an error of accept(2), which
/// is about a connection that is already gone.
async fn accept(listener: Option<&TcpListener>) -> Option<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.ok().map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

fn bound(address: SocketAddr) -> Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // Several sockets share the port as long as one of them listens.
    socket.set_reuseaddr(true)?;
    socket
        .bind(address)
        .with_context(|| format!("the API server cannot bind {address}"))?;
    Ok(socket)
}
