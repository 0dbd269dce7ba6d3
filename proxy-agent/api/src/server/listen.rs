//! Where clients come in: a Unix socket, loopback, or mutual TLS.

#[cfg(feature = "tls")]
use std::fs;
use std::path::Path;

use thiserror::Error;
use tokio::{
    net::{TcpListener, UnixListener},
    sync::watch,
};
use tonic::transport::Server;
#[cfg(feature = "tls")]
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use super::{
    incoming::connections,
    publisher::Publisher,
    service::{SILENCE, Service},
    socket::{self, SocketFile},
};
use crate::{Target, TlsFiles, target::Host, wire::node_api_server::NodeApiServer};

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
    server: Server,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixListener, SocketFile),
    Tcp(TcpListener),
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
        let server = Server::builder()
            .http2_keepalive_interval(Some(SILENCE))
            .http2_keepalive_timeout(Some(SILENCE));
        let server = match (target.is_tls(), &tls) {
            (false, _) => server,
            (true, Some(files)) => secure(server, files).map_err(failed)?,
            (true, None) => {
                let reason = "needs a certificate, its key and an authority for clients";
                return Err(failed(reason.to_owned()));
            }
        };
        let socket = match &target {
            Target::Unix(path) => unix(path, mode).await.map_err(failed)?,
            Target::Tcp(host) | Target::Tls(host) => tcp(host).await.map_err(failed)?,
        };
        Ok(Self {
            target,
            socket,
            server,
        })
    }

    /// Where clients find it: with the port that the system chose, if it did.
    pub fn target(&self) -> Target {
        let port = match &self.socket {
            Socket::Unix(..) => None,
            Socket::Tcp(listener) => listener.local_addr().ok().map(|address| address.port()),
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
            Socket::Tcp(_) => None,
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
    let mut server = listener.server;
    let (_open, open) = watch::channel(());
    let router = server.add_service(NodeApiServer::new(Service::new(publisher, open)));
    let end = match listener.socket {
        Socket::Unix(listener, _file) => router.serve_with_incoming(connections(listener)).await,
        Socket::Tcp(listener) => router.serve_with_incoming(connections(listener)).await,
    };
    end.map_err(|error| ListenError {
        target,
        reason: error.to_string(),
    })
}

async fn tcp(host: &Host) -> Result<Socket, String> {
    let listener = TcpListener::bind((&*host.name, host.port)).await;
    listener.map(Socket::Tcp).map_err(|error| error.to_string())
}

async fn unix(path: &Path, mode: u32) -> Result<Socket, String> {
    if socket::is_served(path).await {
        return Err("another process listens there".to_owned());
    }
    let opened = socket::listen(path, mode, DIRECTORY_MODE);
    let (listener, file) = opened.map_err(|error| error.to_string())?;
    Ok(Socket::Unix(listener, file))
}

#[cfg(feature = "tls")]
fn secure(server: Server, files: &TlsFiles) -> Result<Server, String> {
    let read = |path: &Path| {
        fs::read(path).map_err(|error| format!("reading {}: {error}", path.display()))
    };
    let identity = Identity::from_pem(read(&files.cert)?, read(&files.key)?);
    let config = ServerTlsConfig::new()
        .identity(identity)
        .timeout(SILENCE)
        .client_ca_root(Certificate::from_pem(read(&files.ca)?));
    server.tls_config(config).map_err(|error| {
        format!(
            "using {}, {} and {}: {error}",
            files.cert.display(),
            files.key.display(),
            files.ca.display()
        )
    })
}

#[cfg(not(feature = "tls"))]
fn secure(_: Server, _: &TlsFiles) -> Result<Server, String> {
    Err("this program was built without TLS (feature `tls`)".to_owned())
}
