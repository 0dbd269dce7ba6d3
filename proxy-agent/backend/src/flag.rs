//! The flags of a backend as data, so that they appear in `--help` and in the reference page
//! without being named anywhere else.

use std::{collections::BTreeMap, ffi::OsString, fmt, path::PathBuf};

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
    /// The field of the configuration file that means the same, such as `culvert.name`, if there is
    /// one. That is all it takes: its type and its default follow from what the flag takes.
    pub field: Option<&'static str>,
}

/// What follows a flag. Values have a name for the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Nothing.
    Nothing,
    /// True or false; alone it means true. The default is false.
    Switch,
    /// One of these words, such as `auto|on|off`, of which the first is the default; of several flags the
    /// last one counts.
    Choice(&'static str),
    /// Some text; of several flags the last one counts.
    Text {
        /// Its name for the help.
        name: &'static str,
        /// What it is where nothing is given.
        default: &'static str,
    },
    /// The path of a file or directory.
    Path(&'static str),
    /// Some text; may be repeated.
    Texts(&'static str),
    /// A name and its number, `NAME=NUMBER`; may be repeated, and of several for one name the last one
    /// counts.
    Numbers(&'static str),
}

/// What was given, by flag.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Given(BTreeMap<&'static str, Vec<OsString>>);

impl Given {
    /// Keeps the values of a flag that was given; a flag that takes nothing has none.
    pub fn insert(&mut self, flag: &'static str, values: Vec<OsString>) {
        self.0.insert(flag, values);
    }

    /// Forgets the flag.
    pub fn remove(&mut self, flag: &str) {
        self.0.remove(flag);
    }

    /// Takes what `other` has: its values count where both have some.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Whether the flag was given.
    pub fn is_given(&self, flag: &str) -> bool {
        self.0.contains_key(flag)
    }

    /// Whether it was given, and not as false.
    pub fn is_on(&self, flag: &str) -> bool {
        self.is_given(flag) && self.texts(flag).last() != Some("false")
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

/// A value that a flag must not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagMistake {
    /// The flag, without the dashes.
    pub flag: &'static str,
    /// What was given.
    pub value: String,
    /// What is wrong with it, and what to do.
    pub why: String,
}

/// As it is told where the command line gave the value.
impl fmt::Display for FlagMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{} {}: {}", self.flag, self.value, self.why)
    }
}

/// The words of [`Takes::Choice`] as people list them: `auto, on or off`.
pub fn one_of(words: &str) -> String {
    match words.rsplit_once('|') {
        Some((first, last)) => format!("{} or {last}", first.replace('|', ", ")),
        None => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_was_given_twice_the_later_counts() {
        let given = |flag, values: &[&str]| {
            let mut given = Given::default();
            given.insert(flag, values.iter().map(OsString::from).collect());
            given
        };
        let mut all = given("colour", &["red", "blue"]);
        all.extend(given("size", &["7"]));
        all.extend(given("colour", &[]));
        assert!(all.is_given("colour"));
        assert_eq!(all.texts("colour").count(), 0);
        assert_eq!(all.texts("size").collect::<Vec<_>>(), ["7"]);
        assert!(given("switch", &[]).is_on("switch"));
        assert!(given("switch", &["true"]).is_on("switch"));
        assert!(!given("switch", &["true", "false"]).is_on("switch"));
        assert!(!Given::default().is_on("switch"));
    }

    #[test]
    fn words_are_listed_as_people_do() {
        assert_eq!(one_of("auto|on|off"), "auto, on or off");
        assert_eq!(one_of("on|off"), "on or off");
        assert_eq!(one_of("on"), "on");
    }
}
