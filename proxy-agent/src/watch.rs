//! Says when something under the given paths changed: manifests, or the configuration file. Reads none
//! of them itself.
//!
//! Directories are watched, never files: editors and `ConfigMap` mounts replace a file or a link
//! rather than write into it, and a watch on the old file would hear nothing more.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use notify::{
    EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use thiserror::Error;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

/// How long nothing must happen before a change is reported: one save is several events.
const QUIET: Duration = Duration::from_millis(50);
/// How long a change is held back at most, however busy the files are.
const LONGEST: Duration = Duration::from_millis(500);

/// Why the paths cannot be watched.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The kernel gave no watcher.
    #[error(
        "cannot watch files for changes: {source}; fs.inotify.max_user_instances may be too low"
    )]
    Start {
        /// What the kernel said.
        source: notify::Error,
    },
    /// One directory cannot be watched.
    #[error("cannot watch {path} for changes: {source}")]
    Directory {
        /// Which.
        path: PathBuf,
        /// What the kernel said.
        source: notify::Error,
    },
}

/// Watches until dropped.
#[derive(Debug)]
pub struct Watch {
    paths: Vec<PathBuf>,
    watcher: RecommendedWatcher,
    watched: BTreeSet<PathBuf>,
    changes: Changes,
}

/// Starts to watch `paths`. Do so before the first read: what changes in between is then
/// reported, not missed.
pub fn watch(paths: &[PathBuf]) -> Result<Watch, WatchError> {
    let signal = Arc::new(Notify::new());
    let reporter = Arc::clone(&signal);
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // What went wrong while watching may have hidden a change.
        if event.map_or(true, |event| is_change(event.kind)) {
            reporter.notify_one();
        }
    })
    .map_err(|source| WatchError::Start { source })?;
    let mut watch = Watch {
        paths: paths.to_vec(),
        watcher,
        watched: BTreeSet::new(),
        changes: Changes {
            reported: signal,
            first: None,
        },
    };
    for directory in directories(&watch.paths) {
        watch
            .add(&directory)
            .map_err(|source| WatchError::Directory {
                path: directory,
                source,
            })?;
    }
    Ok(watch)
}

impl Watch {
    /// Waits until something changed and is then quiet for a moment. May report a change where
    /// there is none that matters. Cancel safe.
    pub async fn changed(&mut self) {
        self.changes.next().await;
        self.follow();
    }

    /// Watches what the paths lead to now: a directory may have been replaced, and the kernel
    /// watches the old one by its inode. Before the caller reads, so that nothing is missed.
    fn follow(&mut self) {
        for directory in std::mem::take(&mut self.watched) {
            // With one that is gone the kernel's watch is, and the library warns of that.
            if directory.is_dir() {
                drop(self.watcher.unwatch(&directory));
            }
        }
        for directory in directories(&self.paths) {
            if let Err(error) = self.add(&directory) {
                let directory = directory.display();
                tracing::warn!(%directory, %error, "cannot watch for changes");
            }
        }
    }

    /// Watches a directory too. One that was exchanged meanwhile is gone, which the directory that holds it tells.
    fn add(&mut self, directory: &Path) -> notify::Result<()> {
        match self.watcher.watch(directory, RecursiveMode::NonRecursive) {
            Ok(()) => drop(self.watched.insert(directory.to_owned())),
            Err(error) if directory.is_dir() => return Err(error),
            Err(_) => {}
        }
        Ok(())
    }
}

/// Reports of the watcher, held back until they pause.
#[derive(Debug)]
struct Changes {
    /// Keeps one report until it is asked for, which is enough: it says that there is something
    /// to look for, not what.
    reported: Arc<Notify>,
    /// When the first report came that `next` has not passed on. Kept here, not in `next`, so
    /// that cancelling that one loses nothing.
    first: Option<Instant>,
}

impl Changes {
    async fn next(&mut self) {
        let first = if let Some(first) = self.first {
            first
        } else {
            self.reported.notified().await;
            *self.first.insert(Instant::now())
        };
        let latest = first + LONGEST;
        loop {
            let pause = latest.min(Instant::now() + QUIET);
            if timeout_at(pause, self.reported.notified()).await.is_err()
                || Instant::now() >= latest
            {
                break;
            }
        }
        self.first = None;
    }
}

/// Reading is no change, or each read would lead to the next.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

/// For each path: itself if it is a directory, and the directory that holds it; the same for
/// where it leads if it is a link.
fn directories(paths: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut directories = BTreeSet::new();
    for path in paths {
        for path in [Some(path.clone()), path.canonicalize().ok()]
            .into_iter()
            .flatten()
        {
            if path.is_dir() {
                directories.insert(path.clone());
            }
            directories.extend(path.parent().and_then(nearest_directory));
        }
    }
    directories
}

/// `path`, or what is left of it: the directory in which the rest must reappear.
fn nearest_directory(path: &Path) -> Option<PathBuf> {
    if path.as_os_str().is_empty() {
        return Some(PathBuf::from("."));
    }
    path.ancestors()
        .find(|path| path.is_dir())
        .map(Path::to_owned)
}

#[cfg(test)]
mod tests;
