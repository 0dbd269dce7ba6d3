//! Where clients come in: a Unix socket, loopback, or mutual TLS.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use thiserror::Error;
use tokio::{
    net::{TcpListener, UnixListener},
    sync::watch,
};
use tonic::transport::Server;
use tower::util::MapRequestLayer;

#[cfg(feature = "tls")]
use super::tls::{Certificates, TlsError};
use super::{
    caller::Trust,
    clients::MOST_STREAMS,
    incoming::connections,
    publisher::Publisher,
    requests::Unfinished,
    service::{SILENCE, Service},
    socket::{self, SocketError, SocketFile},
};
use crate::{
    Target, TlsFiles, TokenError, target::Host, token::TokenFile,
    wire::node_api_server::NodeApiServer,
};

/// Rights of a socket that nobody chose others for: its user alone.
pub const SOCKET_MODE: u32 = 0o600;

/// Those of directories on the way there: the socket's own are what counts.
const DIRECTORY_MODE: u32 = 0o755;

/// Why nobody can come in.
#[derive(Debug, Error)]
#[error("cannot listen on {target}: {problem}")]
pub struct ListenError {
    /// Where.
    pub target: Target,
    /// Why not.
    pub problem: ListenProblem,
}

/// What keeps clients out.
#[derive(Debug, Error)]
pub enum ListenProblem {
    /// Somebody is there already.
    #[error("another process listens there")]
    Served,
    /// The file of the socket cannot be put in place.
    #[error("{0}")]
    Socket(SocketError),
    /// The system does not give the address.
    #[error("{0}")]
    Address(io::Error),
    /// The token that clients are to show cannot be used.
    #[error("{0}")]
    Token(TokenError),
    /// No files of mutual TLS were given.
    #[error("needs a certificate, its key and an authority for clients")]
    NoTlsFiles,
    /// Those that were given cannot be used.
    #[cfg(feature = "tls")]
    #[error("{0}")]
    Tls(TlsError),
    /// This program has no TLS.
    #[error("this program was built without TLS (feature `tls`)")]
    NoTls,
    /// It listened, and could not go on.
    #[error("{0}")]
    Ended(tonic::transport::Error),
}

/// A place where clients are about to come in.
#[derive(Debug)]
pub struct Listener {
    target: Target,
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixListener, SocketFile),
    /// Of this host alone; who comes is anybody, unless there is a token to show.
    Tcp(TcpListener, Trust),
    #[cfg(feature = "tls")]
    Tls(TcpListener, Arc<Certificates>),
}

impl Listener {
    /// Opens `target`. `mode`: rights of a Unix socket. A socket that a process left behind which
    /// is gone is replaced; one that somebody listens on is not.
    pub async fn open(
        target: Target,
        mode: u32,
        tls: Option<TlsFiles>,
    ) -> Result<Self, ListenError> {
        let failed = |problem| ListenError {
            target: target.clone(),
            problem,
        };
        let socket = match &target {
            Target::Unix(path) => unix(path, mode).await.map_err(failed)?,
            Target::Tcp(host) => Socket::Tcp(tcp(host).await.map_err(failed)?, Trust::Nobody),
            Target::Tls(host) => secure(host, tls).await.map_err(failed)?,
        };
        Ok(Self { target, socket })
    }

    /// Takes reports on `tcp://` from who shows the token in the file at `path`, which is read again
    /// when it changes. Means nothing where clients are known otherwise.
    pub fn with_token(mut self, path: PathBuf) -> Result<Self, ListenError> {
        if let Socket::Tcp(_, trust) = &mut self.socket {
            let file = TokenFile::open(path).map_err(|error| ListenError {
                target: self.target.clone(),
                problem: ListenProblem::Token(error),
            })?;
            *trust = Trust::Token(Arc::new(file));
        }
        Ok(self)
    }

    /// Where clients find it: with the port that the system chose, if it did.
    pub fn target(&self) -> Target {
        let port = match &self.socket {
            Socket::Unix(..) => None,
            Socket::Tcp(listener, _) => port(listener),
            #[cfg(feature = "tls")]
            Socket::Tls(listener, _) => port(listener),
        };
        let mut target = self.target.clone();
        if let (Some(port), Target::Tcp(host) | Target::Tls(host)) = (port, &mut target) {
            host.port = port;
        }
        target
    }
}

impl Listener {
    /// Comes back once clients cannot find it any more, because somebody removed its socket's file.
    pub fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let gone = match &self.socket {
            Socket::Unix(_, file) => Some(file.gone()),
            _ => None,
        };
        async move {
            match gone {
                Some(gone) => gone.await,
                None => std::future::pending().await,
            }
        }
    }
}

/// Serves clients until this is dropped: then their calls end.
pub async fn serve(publisher: Publisher, listener: Listener) -> Result<(), ListenError> {
    let target = listener.target();
    let unfinished = Unfinished::default();
    let mut server = Server::builder()
        .layer(MapRequestLayer::new(move |request| {
            unfinished.bounded(request)
        }))
        // One more than are served hears why it is not.
        .max_concurrent_streams(u32::try_from(MOST_STREAMS).ok())
        .http2_keepalive_interval(Some(SILENCE))
        .http2_keepalive_timeout(Some(SILENCE));
    let (_open, open) = watch::channel(());
    let router = server.add_service(NodeApiServer::new(Service::new(publisher, open)));
    let end = match listener.socket {
        Socket::Unix(listener, _file) => {
            let clients = connections(listener, Trust::Socket);
            router.serve_with_incoming(clients).await
        }
        Socket::Tcp(listener, trust) => {
            let clients = connections(listener, trust);
            router.serve_with_incoming(clients).await
        }
        #[cfg(feature = "tls")]
        Socket::Tls(listener, certificates) => {
            let clients = connections(listener, certificates);
            router.serve_with_incoming(clients).await
        }
    };
    end.map_err(|error| ListenError {
        target,
        problem: ListenProblem::Ended(error),
    })
}

async fn tcp(host: &Host) -> Result<TcpListener, ListenProblem> {
    let listener = TcpListener::bind((&*host.name, host.port)).await;
    listener.map_err(ListenProblem::Address)
}

fn port(listener: &TcpListener) -> Option<u16> {
    listener.local_addr().ok().map(|address| address.port())
}

#[cfg(feature = "tls")]
async fn secure(host: &Host, files: Option<TlsFiles>) -> Result<Socket, ListenProblem> {
    let files = files.ok_or(ListenProblem::NoTlsFiles)?;
    let certificates = Arc::new(Certificates::open(files).map_err(ListenProblem::Tls)?);
    Ok(Socket::Tls(tcp(host).await?, certificates))
}

#[cfg(not(feature = "tls"))]
async fn secure(_: &Host, _: Option<TlsFiles>) -> Result<Socket, ListenProblem> {
    Err(ListenProblem::NoTls)
}

async fn unix(path: &Path, mode: u32) -> Result<Socket, ListenProblem> {
    if socket::is_served(path).await {
        return Err(ListenProblem::Served);
    }
    let opened = socket::listen(path, mode, DIRECTORY_MODE);
    let (listener, file) = opened.map_err(ListenProblem::Socket)?;
    Ok(Socket::Unix(listener, file))
}
