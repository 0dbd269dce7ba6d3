//! A Unix socket in the file system: put in place with its rights, and taken away again. Knows
//! nothing of what is said there.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use thiserror::Error;
use tokio::{
    net::{UnixListener, UnixStream},
    time::{sleep, timeout},
};

/// How often it is looked whether a socket's file is still there.
const LOOK: Duration = Duration::from_secs(1);

/// Why a socket could not be put in place.
#[derive(Debug, Error)]
#[error("{what} {path}: {error}")]
pub struct SocketError {
    /// What was attempted.
    pub what: &'static str,
    /// On what.
    pub path: PathBuf,
    /// What stopped it, and perhaps what to do.
    pub error: io::Error,
}

/// The file of a Unix socket; removed when dropped, unless another one has taken its place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    /// Comes back once somebody removed the file, or put another one in its place: then nobody finds
    /// the socket any more.
    pub fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let (path, ours) = (self.path.clone(), self.identity);
        async move {
            while identity(&path).ok() == Some(ours) {
                sleep(LOOK).await;
            }
        }
    }
}

/// Listens on `path`, whose rights become `mode`. Directories on the way there are made with
/// `directory_mode`. A socket that is there is replaced: see [`is_served`]; anything else is not.
pub fn listen(
    path: &Path,
    mode: u32,
    directory_mode: u32,
) -> Result<(UnixListener, SocketFile), SocketError> {
    let failed = |what, error| SocketError {
        what,
        path: path.to_owned(),
        error,
    };
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        let error = io::Error::other("this does not name a file");
        return Err(failed("cannot listen on", error));
    };
    DirBuilder::new()
        .recursive(true)
        .mode(directory_mode)
        .create(directory)
        .map_err(|error| failed("cannot make the directory of", error))?;
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            let error = io::Error::other("something other than a socket is there");
            return Err(failed("cannot replace", error));
        }
        _ => {}
    }
    // In a directory that nobody else can enter: nobody connects before the rights are right.
    let mut staged = OsString::from(".");
    staged.push(name);
    staged.push(format!(".{}", std::process::id()));
    let staged = Staging(directory.join(staged));
    // Of a process that was killed at this point; in a container, all of them have the same number.
    fs::remove_dir_all(&staged.0).ok();
    DirBuilder::new()
        .mode(0o700)
        .create(&staged.0)
        .map_err(|error| failed("cannot make a directory beside", error))?;
    let socket = staged.0.join("s");
    let listener =
        UnixListener::bind(&socket).map_err(|error| failed("cannot listen on", error))?;
    fs::set_permissions(&socket, Permissions::from_mode(mode))
        .and_then(|()| fs::rename(&socket, path))
        .map_err(|error| failed("cannot put in place", error))?;
    let identity = identity(path).map_err(|error| failed("cannot look at", error))?;
    let path = path.to_owned();
    Ok((listener, SocketFile { path, identity }))
}

/// Whether a process is behind the socket at `path`, be it one that does not answer.
pub async fn is_served(path: &Path) -> bool {
    /// A process that was stopped accepts nobody, and refuses nobody either.
    const PATIENCE: Duration = Duration::from_secs(20);
    match timeout(PATIENCE, UnixStream::connect(path)).await {
        // These alone say that there is nobody. A queue that is full says the opposite (EAGAIN),
        // and rights that do not suffice say nothing.
        Ok(Err(error)) => !matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused
                | io::ErrorKind::NotFound
                | io::ErrorKind::NotADirectory
        ),
        _ => true,
    }
}

/// Removes the socket at `path`, if there is one.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).ok() == Some(self.identity)
            && let Err(error) = remove(&self.path)
        {
            tracing::debug!(path = %self.path.display(), %error, "socket not removed");
        }
    }
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
