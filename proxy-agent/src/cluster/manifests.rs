//! Manifest files as a source of cluster objects: what `kubectl get -o yaml` prints, or what a
//! person writes.
//!
//! ```text
//! paths ──listing──> files ──document──> values ──object──> objects ──merge──> ClusterEvent
//! ```
//!
//! A file is taken over as a whole or not at all: one that is broken is reported, and its last
//! good objects stay in force. Reading is on demand; `watch` only says when it is worthwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    hash::{DefaultHasher, Hasher},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use proxy_model::ClusterEvent;
use thiserror::Error;

mod document;
mod listing;
mod merge;
mod object;

use merge::Merged;
use object::Object;

/// Holds, for each file, the last objects that made sense.
#[derive(Debug)]
pub struct ManifestSource {
    /// As given: files and directories, in order of precedence, the last one counts most.
    arguments: Vec<Argument>,
    files: BTreeMap<PathBuf, File>,
    merged: Merged,
    /// Files and arguments that are broken at present.
    rejected: BTreeMap<PathBuf, Vec<String>>,
}

#[derive(Debug)]
struct Argument {
    path: PathBuf,
    /// What it stood for when it could last be listed.
    files: Vec<PathBuf>,
}

#[derive(Debug, Default)]
struct File {
    /// Of the content last read, good or bad; `None` before the first read.
    digest: Option<u64>,
    /// The last good objects.
    objects: Arc<[Object]>,
    /// What is wrong with the content last read.
    problems: Vec<String>,
}

/// What a [`ManifestSource::poll`] found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Poll {
    /// Lead from the objects of the poll before to the present ones.
    pub events: Vec<ClusterEvent>,
    /// Files that are broken in a way that was not reported before.
    pub rejected: Vec<Rejected>,
    /// Files that were broken and no longer are, or are gone.
    pub recovered: Vec<PathBuf>,
}

/// A file that cannot be used as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The file, or a path given by the user that is neither file nor directory.
    pub file: PathBuf,
    /// What is wrong, each with document, object and field as far as known; not empty.
    pub problems: Vec<String>,
}

impl Rejected {
    /// All problems on one line, without the file's name.
    pub fn reason(&self) -> String {
        self.problems.join("; ")
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}: {problem}", self.file.display())?;
        }
        Ok(())
    }
}

/// Manifests that cannot be used. Names all broken files.
#[derive(Debug, Error)]
pub struct ManifestError {
    /// The broken files; not empty.
    pub rejected: Vec<Rejected>,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot use the manifests; correct these mistakes and try again:"
        )?;
        for rejected in &self.rejected {
            write!(f, "\n{rejected}")?;
        }
        Ok(())
    }
}

impl ManifestSource {
    /// A source that has read nothing yet. A path is a file (YAML or JSON, several documents
    /// and lists allowed), or a directory whose `*.yaml`, `*.yml` and `*.json` count, hidden
    /// ones and subdirectories excepted. Where an object is defined twice, the later path
    /// counts; within a directory, the later file name.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let argument = |path| Argument {
            path,
            files: Vec::new(),
        };
        Self {
            arguments: paths.into_iter().map(argument).collect(),
            files: BTreeMap::new(),
            merged: Merged::default(),
            rejected: BTreeMap::new(),
        }
    }

    /// Reads everything again. A file that is broken or cannot be read keeps its last good
    /// objects, and so does a given path that vanished; a file that vanished from a given
    /// directory takes its objects with it. Blocks on file I/O.
    pub fn poll(&mut self) -> Poll {
        let mut rejected = BTreeMap::new();
        let mut changed = Vec::new();
        let mut listed = Vec::new();
        for argument in &mut self.arguments {
            match listing::list(&argument.path) {
                Ok(files) => {
                    for path in &files {
                        let given = *path == argument.path;
                        if self
                            .files
                            .entry(path.clone())
                            .or_default()
                            .read(path, given)
                        {
                            changed.push(path.clone());
                        }
                    }
                    argument.files = files;
                }
                Err(problem) => {
                    rejected.insert(argument.path.clone(), vec![problem]);
                }
            }
            listed.extend_from_slice(&argument.files);
        }
        let present: BTreeSet<_> = listed.iter().collect();
        self.files.retain(|path, _| present.contains(path));
        // Of a file that is given twice, the later mention counts.
        let mut seen = BTreeSet::new();
        let mut order: Vec<_> = listed
            .iter()
            .rev()
            .filter(|path| seen.insert(*path))
            .collect();
        order.reverse();
        for (path, file) in &self.files {
            if !file.problems.is_empty() {
                rejected
                    .entry(path.clone())
                    .or_insert_with(|| file.problems.clone());
            }
        }
        let objects = order.into_iter().flat_map(|path| {
            self.files[path]
                .objects
                .iter()
                .map(move |object| (path, object))
        });
        Poll {
            events: self.merged.replace(objects),
            rejected: rejected
                .iter()
                .filter(|(path, problems)| {
                    changed.contains(path) || self.rejected.get(*path) != Some(problems)
                })
                .map(|(path, problems)| Rejected {
                    file: path.clone(),
                    problems: problems.clone(),
                })
                .collect(),
            recovered: std::mem::replace(&mut self.rejected, rejected)
                .into_keys()
                .filter(|path| !self.rejected.contains_key(path))
                .collect(),
        }
    }

    /// Like [`Self::poll`], but any broken file is an error: for the start of a process, where
    /// there is no last good state to go on with.
    pub fn load(&mut self) -> Result<Vec<ClusterEvent>, ManifestError> {
        let poll = self.poll();
        if self.rejected.is_empty() {
            return Ok(poll.events);
        }
        let rejected = |(file, problems): (&PathBuf, &Vec<String>)| Rejected {
            file: file.clone(),
            problems: problems.clone(),
        };
        Err(ManifestError {
            rejected: self.rejected.iter().map(rejected).collect(),
        })
    }
}

/// Reads manifests a single time.
pub fn load_once(paths: Vec<PathBuf>) -> Result<Vec<ClusterEvent>, ManifestError> {
    ManifestSource::new(paths).load()
}

impl File {
    /// Brings the file up to date; says whether its content changed. The content decides, not
    /// the modification time, whose grain is too coarse to tell two quick writes apart.
    ///
    /// What is `given` may be a pipe, as shells make them. In a directory, where anybody may put
    /// one at any time, it would be waited for without end.
    fn read(&mut self, path: &Path, given: bool) -> bool {
        let regular = || {
            if fs::metadata(path)?.is_file() {
                Ok(())
            } else {
                Err(io::Error::other("it is not a regular file"))
            }
        };
        let looked = if given { Ok(()) } else { regular() };
        let bytes = match looked.and_then(|()| fs::read(path)) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.digest = None;
                self.problems = vec![format!("cannot be read: {error}")];
                return false;
            }
        };
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        let digest = Some(hasher.finish());
        if self.digest == digest {
            return false;
        }
        self.digest = digest;
        match object::read_file(path, &bytes) {
            Ok(objects) => {
                self.objects = objects.into();
                self.problems.clear();
            }
            Err(problems) => self.problems = problems,
        }
        true
    }
}

#[cfg(test)]
mod tests;
