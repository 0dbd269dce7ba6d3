//! What lies in a root file system, as a value: sorted, so that it is always packed the same way.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};

/// One thing by its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A directory.
    Directory {
        /// Its permissions.
        mode: u32,
    },
    /// A file.
    File {
        /// Its permissions.
        mode: u32,
        /// What is in it.
        bytes: Vec<u8>,
    },
    /// A symbolic link to this.
    Link(String),
}

/// A part of a root file system, by paths without the first slash. Everything in it belongs to root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Root(BTreeMap<String, Entry>);

impl Root {
    /// Adds a thing, and the directories above it.
    pub(crate) fn add(&mut self, path: &str, entry: Entry) {
        for (end, _) in path.match_indices('/') {
            let above = self.0.entry(path[..end].to_owned());
            above.or_insert(Entry::Directory { mode: 0o755 });
        }
        self.0.insert(path.to_owned(), entry);
    }

    /// Adds a file that everybody may read.
    pub(crate) fn file(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        let bytes = bytes.into();
        self.add(path, Entry::File { mode: 0o644, bytes });
    }

    /// Adds a file that everybody may execute.
    pub(crate) fn program(&mut self, path: &str, bytes: Vec<u8>) {
        self.add(path, Entry::File { mode: 0o755, bytes });
    }

    /// Adds an empty directory, to mount something on.
    pub(crate) fn directory(&mut self, path: &str) {
        self.add(path, Entry::Directory { mode: 0o755 });
    }

    /// What is there.
    #[cfg(test)]
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The archive of it, everything of this time (seconds since 1970).
    pub(crate) fn tar(&self, time: u64) -> Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, entry) in &self.0 {
            let mut header = tar::Header::new_gnu();
            header.set_mtime(time);
            header.set_uid(0);
            header.set_gid(0);
            let added = match entry {
                Entry::Directory { mode } => {
                    header.set_entry_type(tar::EntryType::Directory);
                    header.set_mode(*mode);
                    header.set_size(0);
                    archive.append_data(&mut header, format!("{path}/"), std::io::empty())
                }
                Entry::File { mode, bytes } => {
                    header.set_entry_type(tar::EntryType::Regular);
                    header.set_mode(*mode);
                    header.set_size(bytes.len() as u64);
                    archive.append_data(&mut header, path, &bytes[..])
                }
                Entry::Link(to) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_mode(0o777);
                    header.set_size(0);
                    archive.append_link(&mut header, path, to)
                }
            };
            added.with_context(|| format!("packing {path}"))?;
        }
        archive.into_inner().context("packing")
    }
}

/// The same bytes for the same input: no name and no time in it.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut packed = GzBuilder::new().write(Vec::new(), Compression::best());
    packed.write_all(bytes).context("compressing")?;
    packed.finish().context("compressing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_sorted_complete_and_root_s() {
        let mut root = Root::default();
        root.program("usr/bin/b", vec![1, 2, 3]);
        root.add("usr/bin/a", Entry::Link("b".to_owned()));
        root.directory("proc");
        let packed = root.tar(1_700_000_000).unwrap();
        let mut archive = tar::Archive::new(&packed[..]);
        let seen: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                assert_eq!(header.mtime().unwrap(), 1_700_000_000);
                assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
                let path = entry.path().unwrap().display().to_string();
                (path, header.mode().unwrap(), header.size().unwrap())
            })
            .collect();
        let seen: Vec<_> = seen
            .iter()
            .map(|(path, m, s)| (path.as_str(), *m, *s))
            .collect();
        assert_eq!(
            seen,
            [
                ("proc/", 0o755, 0),
                ("usr/", 0o755, 0),
                ("usr/bin/", 0o755, 0),
                ("usr/bin/a", 0o777, 0),
                ("usr/bin/b", 0o755, 3),
            ]
        );
    }

    #[test]
    fn compression_adds_neither_name_nor_time() {
        let packed = gzip(b"text").unwrap();
        // Magic number, method, flags, time.
        assert_eq!(packed[..8], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0]);
    }
}
