//! Where clients come in: a Unix socket, loopback, or mutual TLS.

use std::{
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
use super::tls::Certificates;
use super::{
    caller::Trust,
    clients::MOST_STREAMS,
    incoming::connections,
    publisher::Publisher,
    requests::Unfinished,
    service::{SILENCE, Service},
    socket::{self, SocketFile},
};
use crate::{
    Target, TlsFiles, target::Host, token::TokenFile, wire::node_api_server::NodeApiServer,
};

/// Rights of a socket that nobody chose others for: its user alone.
pub const SOCKET_MODE: u32 = 0o600;

/// Those of directories on the way there: the socket's own are what counts.
const DIRECTORY_MODE: u32 = 0o755;

/// Why nobody can come in.
#[derive(Debug, Error)]
#[error("cannot listen on {target}: {reason}")]
pub struct ListenError {
    target: Target,
    reason: String,
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
        let failed = |reason| ListenError {
            target: target.clone(),
            reason,
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
            let file = TokenFile::open(path).map_err(|reason| ListenError {
                target: self.target.clone(),
                reason,
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
        reason: error.to_string(),
    })
}

async fn tcp(host: &Host) -> Result<TcpListener, String> {
    let listener = TcpListener::bind((&*host.name, host.port)).await;
    listener.map_err(|error| error.to_string())
}

fn port(listener: &TcpListener) -> Option<u16> {
    listener.local_addr().ok().map(|address| address.port())
}

#[cfg(feature = "tls")]
async fn secure(host: &Host, files: Option<TlsFiles>) -> Result<Socket, String> {
    let files = files.ok_or("needs a certificate, its key and an authority for clients")?;
    let certificates = Arc::new(Certificates::open(files)?);
    Ok(Socket::Tls(tcp(host).await?, certificates))
}

#[cfg(not(feature = "tls"))]
async fn secure(_: &Host, _: Option<TlsFiles>) -> Result<Socket, String> {
    Err("this program was built without TLS (feature `tls`)".to_owned())
}

async fn unix(path: &Path, mode: u32) -> Result<Socket, String> {
    if socket::is_served(path).await {
        return Err("another process listens there".to_owned());
    }
    let opened = socket::listen(path, mode, DIRECTORY_MODE);
    let (listener, file) = opened.map_err(|error| error.to_string())?;
    Ok(Socket::Unix(listener, file))
}
