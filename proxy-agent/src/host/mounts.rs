//! What is mounted where, as this process sees it: lines of `/proc/self/mountinfo` (proc(5)). Pure.

use std::path::Path;

/// The file of them.
pub const TABLE: &str = "/proc/self/mountinfo";

/// One of them.
#[derive(Debug, PartialEq, Eq)]
pub struct Mount<'a> {
    /// The directory of the file system that is shown: `/` where all of it is.
    pub root: &'a str,
    /// Where. Characters that the table escapes are left so.
    pub at: &'a Path,
    /// The type of the file system.
    pub kind: &'a str,
    /// Others see what is mounted on it: it is a member of a peer group.
    pub shared: bool,
    /// Whether this mount leaves its files writable.
    pub writable: bool,
}

/// Those of the table, in its order: of two at one place the last is seen.
pub fn each(table: &str) -> impl DoubleEndedIterator<Item = Mount<'_>> {
    table.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let fields: Vec<&str> = before.split(' ').collect();
        let [_, _, _, root, at, options, tags @ ..] = &fields[..] else {
            return None;
        };
        Some(Mount {
            root,
            at: Path::new(*at),
            kind: after.split(' ').next()?,
            shared: tags.iter().any(|tag| tag.starts_with("shared:")),
            writable: options.split(',').any(|option| option == "rw"),
        })
    })
}
