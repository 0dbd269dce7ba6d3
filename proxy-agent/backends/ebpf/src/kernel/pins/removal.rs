//! Removes pins: by name what Culvert can have made, file by file, and never anything else. A pin
//! directory can be any directory on bpffs, with pins of other programs in it.
//!
//! Must not know what is pinned: links are detached elsewhere before their pins go.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use super::{PinDir, PinError, PinPath};

/// What removing came to.
#[derive(Debug, Default)]
pub struct Removal {
    /// Directories removed, the pin directory itself included.
    pub removed: usize,
    /// What is not Culvert's and was left where it is.
    pub left: Vec<PathBuf>,
    /// What could not be removed, and why.
    pub problems: Vec<PinError>,
}

impl PinDir {
    /// Removes the maps of every version, and the directory if it is empty then. Links must be
    /// unpinned before.
    pub fn remove(&self) -> Removal {
        let mut removal = Removal::default();
        let here = self.here();
        for path in removal.entries(&here) {
            if [self.links(), self.devices()]
                .iter()
                .any(|links| path.shown() == links.shown())
            {
                removal.remove_empty(&path);
            } else if is_maps(path.shown()) {
                removal.remove_tree(&path);
            } else {
                removal.left.push(path.shown().to_owned());
            }
        }
        removal.left.sort();
        if removal.left.is_empty() && removal.problems.is_empty() {
            // By its path: a directory has no name in itself. Only root can have exchanged it.
            removal.note_directory(&self.path, fs::remove_dir(&self.path));
        }
        removal
    }

    /// Removes maps that another version or a crash left beside ours, which must be in force. What
    /// cannot be removed does no harm but for the memory it takes.
    pub fn remove_stale(&self) {
        let ours = [
            self.services(),
            self.service_maps().next,
            self.flows(),
            self.connections(),
            self.connection_maps().next,
        ];
        let mut removal = Removal::default();
        for path in removal.entries(&self.here()) {
            let is_ours = ours.iter().any(|own| own.shown() == path.shown());
            if !is_maps(path.shown()) || is_ours {
                continue;
            }
            tracing::info!(path = %path.display(), "removing maps that are not of this version");
            removal.remove_tree(&path);
        }
        for problem in removal.into_problems() {
            tracing::warn!(
                reason = problem.to_string(),
                "maps that are not of this version stay"
            );
        }
    }
}

/// Removes a pinned object, or a directory of them. What is not there is fine.
pub fn remove_tree(path: &PinPath<'_>) -> Result<(), PinError> {
    let mut removal = Removal::default();
    removal.remove_tree(path);
    let problems = removal.into_problems();
    if problems.is_empty() {
        Ok(())
    } else {
        Err(PinError::Several(problems))
    }
}

impl Removal {
    /// Everything that stands in the way of a removal that had to be complete.
    fn into_problems(self) -> Vec<PinError> {
        let left = self.left.into_iter().map(PinError::NotOurs);
        left.chain(self.problems).collect()
    }

    fn remove_tree(&mut self, path: &PinPath<'_>) {
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                for entry in self.entries(path) {
                    // A pin, or an alias of one; never what a directory or an alias leads to.
                    if !fs::symlink_metadata(&entry).is_ok_and(|there| there.is_dir()) {
                        self.note(entry.shown(), fs::remove_file(&entry));
                    }
                }
                self.remove_empty(path);
            }
            Ok(_) => self.note(path.shown(), fs::remove_file(path)),
            Err(error) => self.note(path.shown(), Err(error)),
        }
    }

    /// Removes a directory, or notes what is in it.
    fn remove_empty(&mut self, path: &PinPath<'_>) {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                let entries = self.entries(path);
                let entries = entries.iter().map(|entry| entry.shown().to_owned());
                self.left.extend(entries);
            }
            result => self.note_directory(path.shown(), result),
        }
    }

    /// Notes what became of a directory.
    fn note_directory(&mut self, path: &Path, result: io::Result<()>) {
        match result {
            Ok(()) => self.removed += 1,
            // A file system's own root goes when it is unmounted.
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
            Err(error) => self.note(path, Err(error)),
        }
    }

    fn entries<'d>(&mut self, directory: &PinPath<'d>) -> Vec<PinPath<'d>> {
        let entries = fs::read_dir(directory).and_then(|entries| {
            entries
                .map(|entry| Ok(directory.join(entry?.file_name())))
                .collect()
        });
        entries.unwrap_or_else(|error: io::Error| {
            self.problems.push(PinError::Refused {
                what: "reading",
                path: directory.shown().to_owned(),
                error,
            });
            Vec::new()
        })
    }

    fn note(&mut self, path: &Path, result: io::Result<()>) {
        match result {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                self.problems.push(PinError::Refused {
                    what: "removing",
                    path: path.to_owned(),
                    error,
                });
            }
            _ => {}
        }
    }
}

/// Whether this is what Culvert calls a directory of maps, in any version.
pub(super) fn is_maps(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let is_version = |version: &str| {
        !version.is_empty() && version.bytes().all(|character| character.is_ascii_digit())
    };
    let Some((group, version)) = name.and_then(|name| name.split_once("-v")) else {
        return false;
    };
    match group {
        "services" | "connections" => {
            let suffixes = ["-next", "-old"];
            let version = suffixes
                .iter()
                .find_map(|suffix| version.strip_suffix(suffix))
                .unwrap_or(version);
            is_version(version)
        }
        "flows" => is_version(version),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_version_gives_are_maps() {
        for name in [
            "services-v1",
            "services-v0",
            "services-v12-next",
            "services-v1-old",
            "connections-v1-next",
            "flows-v7",
            "connections-v1",
        ] {
            assert!(is_maps(&Path::new("/pins").join(name)), "{name}");
        }
        for name in [
            "services-v",
            "services-v-next",
            "services-v1x",
            "services-v1-next-old",
            "services-v1-other",
            "services",
            "flows-v1-next",
            "flows-v+1",
            "my-services-v1",
            "links",
            "maps.debug",
        ] {
            assert!(!is_maps(&Path::new("/pins").join(name)), "{name}");
        }
    }

    #[test]
    fn what_is_no_file_stays_and_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let pins = PinDir::for_test(dir.path());
        let maps = dir.path().join("services-v0");
        let outside = dir.path().join("outside");
        fs::create_dir_all(maps.join("inner")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "").unwrap();
        fs::write(maps.join("MAP"), "").unwrap();
        std::os::unix::fs::symlink(&outside, maps.join("alias")).unwrap();
        let pinned = pins.here().join("services-v0");
        let error = remove_tree(&pinned).unwrap_err().to_string();
        let inner = maps.join("inner");
        assert!(error.contains(inner.to_str().unwrap()), "{error}");
        assert!(inner.is_dir() && !maps.join("MAP").exists());
        assert!(!maps.join("alias").is_symlink() && outside.join("file").exists());
        fs::remove_dir(&inner).unwrap();
        remove_tree(&pinned).unwrap();
        assert!(!maps.exists());
        // What is not there is fine.
        remove_tree(&pinned).unwrap();
    }
}
