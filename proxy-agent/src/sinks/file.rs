//! A file that holds the newest state as JSON, for whoever reads files better than sockets. Written
//! by a thread of its own: a disk that hangs, or a pipe that nobody reads, holds up nothing else.
//! Knows nothing of the state but its JSON.

#[cfg(test)]
mod tests;

use std::{
    ffi::OsString,
    fmt,
    fs::{self, Permissions},
    io::{self, Write as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, PermissionsExt as _},
    },
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, SystemTime},
};

use nix::unistd::geteuid;
use proxy_model::{IpFamily, NodeState};
use thiserror::Error;

use super::Sink;
use crate::{file::directory_of, report};

/// Where the state is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// To standard output, one state after the other.
    Stdout,
    /// Into this file, which holds one state as a whole at any time.
    File(PathBuf),
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Takes states on their way to a file. States that come faster than they can be written are left
/// out, but never the last one.
pub struct FileSink(Arc<Newest>);

/// The end of the writing, to wait for.
pub struct Ending(Receiver<()>);

impl FileSink {
    /// Starts to write to `output`.
    pub fn start(output: Destination) -> io::Result<(Self, Ending)> {
        let mut cleared = false;
        Self::start_with(move |state, told| {
            if let (Destination::File(path), false) = (&output, cleared) {
                clear(path);
                cleared = true;
            }
            told.tell(&output, write(&output, &report::to_json(state)));
        })
    }

    /// The same, with what is done with each state.
    fn start_with(
        mut write: impl FnMut(&NodeState, &mut Reported) + Send + 'static,
    ) -> io::Result<(Self, Ending)> {
        let newest = Arc::<Newest>::default();
        let (ended, end) = mpsc::channel::<()>();
        let source = Arc::clone(&newest);
        thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || {
                // Its end is what is waited for.
                let _ended = ended;
                let mut told = Reported::default();
                while let Some(state) = source.next() {
                    // A panic, which is told, costs this state and no later one.
                    drop(catch_unwind(AssertUnwindSafe(|| write(&state, &mut told))));
                }
            })?;
        Ok((Self(newest), Ending(end)))
    }
}

impl Sink for FileSink {
    fn publish(&mut self, state: &NodeState, _: &[(IpFamily, SystemTime)]) {
        self.0.change(|place| place.state = Some(state.clone()));
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        self.0.change(|place| place.closed = true);
    }
}

impl Ending {
    /// Waits until the last state is written, which needs the sink to be dropped; no longer than
    /// `limit`. Blocks.
    pub fn wait(self, limit: Duration) {
        // Nothing is ever sent: this ends with the thread, or with the time.
        let Err(_) = self.0.recv_timeout(limit) else {
            return;
        };
    }
}

/// A place for one state.
#[derive(Default)]
struct Newest {
    place: Mutex<Place>,
    changed: Condvar,
}

#[derive(Default)]
struct Place {
    state: Option<NodeState>,
    closed: bool,
}

impl Newest {
    fn change(&self, change: impl FnOnce(&mut Place)) {
        change(&mut self.place());
        self.changed.notify_one();
    }

    /// The newest state, once there is one that was not taken; `None` if there will be no more.
    fn next(&self) -> Option<NodeState> {
        let empty = |place: &mut Place| place.state.is_none() && !place.closed;
        let place = self.changed.wait_while(self.place(), empty);
        place.unwrap_or_else(PoisonError::into_inner).state.take()
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        // Each change is one assignment: a panic elsewhere leaves nothing half done.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the log was told last.
#[derive(Debug, Default)]
struct Reported {
    failure: Option<String>,
}

impl Reported {
    /// Tells the log what came of writing: a failure when it comes or has another reason, and the
    /// end of it. Returns whether there was something to tell.
    fn tell(&mut self, output: &Destination, result: Result<(), WriteError>) -> bool {
        match (result.map_err(|error| error.to_string()), &self.failure) {
            (Ok(()), None) => false,
            (Ok(()), Some(_)) => {
                tracing::info!(file = %output, "state written again");
                self.failure = None;
                true
            }
            (Err(reason), Some(before)) if reason == *before => false,
            (Err(reason), _) => {
                tracing::error!(file = %output, reason, "state not written");
                self.failure = Some(reason);
                true
            }
        }
    }
}

/// Why a state was not written.
#[derive(Debug, Error)]
enum WriteError {
    /// Standard output does not take it.
    #[error("writing: {0}; the next state is tried again")]
    Stdout(io::Error),
    /// What is there must stay.
    #[error(transparent)]
    Irreplaceable(#[from] Irreplaceable),
    /// Nothing can be written beside it. Without the name that was invented for that: the log is
    /// told of each reason once.
    #[error(
        "writing a file in {directory}: {}; make sure that the directory is there, and writable \
         for the agent",
        .error.to_string().split(" at path ").next().unwrap_or_default()
    )]
    Beside {
        /// Where the file is.
        directory: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// It was written, and cannot take the place of the file.
    #[error("putting it in its place: {0}")]
    Place(io::Error),
}

/// Something is where the file should be that must not be replaced: a device or a pipe would be gone,
/// a link would no longer lead anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "something that is no regular file is there, and must not be replaced; name another file, or \
     - for standard output"
)]
pub struct Irreplaceable;

fn write(output: &Destination, json: &str) -> Result<(), WriteError> {
    match output {
        Destination::Stdout => {
            let mut stdout = io::stdout().lock();
            let written = stdout.write_all(json.as_bytes());
            written
                .and_then(|()| stdout.flush())
                .map_err(WriteError::Stdout)
        }
        Destination::File(path) => replace(path, json),
    }
}

/// Puts `json` in the place of what `path` holds. Whoever reads sees one or the other.
fn replace(path: &Path, json: &str) -> Result<(), WriteError> {
    may_replace(path)?;
    let directory = directory_of(path);
    let failed = |error| WriteError::Beside {
        directory: directory.to_owned(),
        error,
    };
    // Beside the file: only within a file system is renaming one step. Others may write there, as in
    // /tmp: a name that nobody can guess, and that is not there, leads nowhere else.
    let (start, end) = staged_name(path);
    let mut staged = tempfile::Builder::new()
        .prefix(&start)
        .suffix(end)
        .permissions(Permissions::from_mode(rights(path)))
        .tempfile_in(directory)
        .map_err(failed)?;
    staged.write_all(json.as_bytes()).map_err(failed)?;
    staged
        .persist(path)
        .map(drop)
        .map_err(|error| WriteError::Place(error.error))
}

/// For the agent's user alone. Whom else it let read the file that is there, may read on; a file of
/// somebody else lets nobody in.
fn rights(path: &Path) -> u32 {
    let own = |found: &fs::Metadata| found.is_file() && found.uid() == geteuid().as_raw();
    let found = fs::symlink_metadata(path).ok().filter(own);
    0o600 | found.map_or(0, |found| found.mode() & 0o044)
}

/// How names begin and end of what is to take the place of `path`.
fn staged_name(path: &Path) -> (OsString, &'static str) {
    let mut start = OsString::from(".");
    start.push(path.file_name().unwrap_or_default());
    start.push(".");
    (start, ".new")
}

/// Removes what agents left beside `path` that were killed while they wrote. Only one agent writes
/// there. What cannot be removed harms nobody.
fn clear(path: &Path) {
    let (start, end) = staged_name(path);
    let (start, end) = (start.as_bytes(), end.as_bytes());
    let left = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let name = name.as_bytes();
        // Between them stand the six characters of the library.
        let is_ours = name.len() == start.len() + 6 + end.len()
            && name.starts_with(start)
            && name.ends_with(end);
        is_ours && entry.file_type().is_ok_and(|kind| kind.is_file())
    };
    let all = fs::read_dir(directory_of(path)).into_iter().flatten();
    for entry in all.flatten().filter(left) {
        if let Err(error) = fs::remove_file(entry.path()) {
            tracing::debug!(path = %entry.path().display(), %error, "leftover not removed");
        }
    }
}

/// Whether something may be put in the place of what is at `path`.
pub fn may_replace(path: &Path) -> Result<(), Irreplaceable> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => Err(Irreplaceable),
        _ => Ok(()),
    }
}
