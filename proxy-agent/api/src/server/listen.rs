//! Where clients come in: a Unix socket, loopback, or mutual TLS.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use thiserror::Error;
use tokio::{
    net::{TcpListener, UnixListener, UnixStream},
    sync::watch,
    time::timeout,
};
use tonic::transport::Server;
#[cfg(feature = "tls")]
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use super::{
    incoming::connections,
    publisher::Publisher,
    service::{SILENCE, Service},
};
use crate::{Target, TlsFiles, target::Host, wire::node_api_server::NodeApiServer};

/// Rights of a socket that nobody chose others for: its user alone.
pub const SOCKET_MODE: u32 = 0o600;

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
    Unix(UnixListener, File),
    Tcp(TcpListener),
}

/// The file of a Unix socket; removed when dropped, unless another one has taken its place.
#[derive(Debug)]
struct File {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
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
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err("this is no name of a file".to_owned());
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory)
        .map_err(|error| format!("making the directory: {error}"))?;
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err("something that is no socket is there".to_owned());
        }
        Ok(_) if somebody_listens(path).await => {
            return Err("another process listens there".to_owned());
        }
        _ => {}
    }
    // In a directory that nobody else can enter: nobody connects before the rights are right.
    let mut staged = OsString::from(".");
    staged.push(name);
    staged.push(format!(".{}", std::process::id()));
    let staged = Staging(directory.join(staged));
    DirBuilder::new()
        .mode(0o700)
        .create(&staged.0)
        .map_err(|error| format!("making {}: {error}", staged.0.display()))?;
    let socket = staged.0.join("s");
    let listener = UnixListener::bind(&socket).map_err(|error| error.to_string())?;
    fs::set_permissions(&socket, Permissions::from_mode(mode))
        .and_then(|()| fs::rename(&socket, path))
        .map_err(|error| format!("putting it in place: {error}"))?;
    let identity = identity(path).map_err(|error| format!("looking at it: {error}"))?;
    let path = path.to_owned();
    Ok(Socket::Unix(listener, File { path, identity }))
}

/// Whether a process is behind a socket, be it one that does not answer.
async fn somebody_listens(path: &Path) -> bool {
    !matches!(
        timeout(SILENCE, UnixStream::connect(path)).await,
        Ok(Err(_))
    )
}

/// A directory that is gone when this is dropped.
struct Staging(PathBuf);

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::debug!(path = %self.0.display(), %error, "directory not removed");
        }
    }
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

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if identity(&self.path).ok() == Some(self.identity)
            && let Err(error) = remove(&self.path)
        {
            tracing::debug!(path = %self.path.display(), %error, "socket not removed");
        }
    }
}
