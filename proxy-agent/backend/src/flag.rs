//! The flags of a backend as data, so that they appear in `--help` and in the reference page
//! without being named anywhere else.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

/// A flag of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flag {
    /// Its name, without the dashes.
    pub name: &'static str,
    /// What follows it.
    pub takes: Takes,
    /// Its help text in `run`.
    pub help: &'static str,
    /// Its help text in `check`; `None` if `check` does not take it.
    pub check_help: Option<&'static str>,
}

/// What follows a flag. Values have a name for the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Nothing.
    Nothing,
    /// The path of a file or directory.
    Path(&'static str),
    /// Some text; may be repeated.
    Texts(&'static str),
}

/// What was given, by flag.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Given(BTreeMap<&'static str, Vec<OsString>>);

impl Given {
    /// Keeps the values of a flag that was given; a flag that takes nothing has none.
    pub fn insert(&mut self, flag: &'static str, values: Vec<OsString>) {
        self.0.insert(flag, values);
    }

    /// Whether the flag was given.
    pub fn is_given(&self, flag: &str) -> bool {
        self.0.contains_key(flag)
    }

    /// Its path, if it was given.
    pub fn path(&self, flag: &str) -> Option<PathBuf> {
        self.values(flag).first().map(PathBuf::from)
    }

    /// Its texts; none if it was not given.
    pub fn texts(&self, flag: &str) -> impl Iterator<Item = &str> {
        // Whoever parses the command line takes only what is UTF-8 for a text.
        self.values(flag).iter().filter_map(|value| value.to_str())
    }

    fn values(&self, flag: &str) -> &[OsString] {
        self.0.get(flag).map_or(&[], Vec::as_slice)
    }
}
