//! Which tests of a program are run: those of some of its suites, by the filters of the command
//! line. Pure.
//!
//! A test program takes words that a name must contain, one of them: that says nothing of the
//! suite. So a program is asked for its tests, and told by name which to run.

use anyhow::{Result, bail};

/// Flags of test programs that are followed by a value of their own.
const WITH_VALUE: &[&str] = &[
    "--color",
    "--format",
    "--logfile",
    "--shuffle-seed",
    "--test-threads",
    "-Z",
];

/// What the command line says of tests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    /// A name must contain one of these, if there are any.
    words: Vec<String>,
    /// …and none of these.
    skipped: Vec<String>,
    /// Names are meant as a whole.
    exact: bool,
    /// What has nothing to do with names.
    pub(crate) options: Vec<String>,
    /// Whether to leave out a test that would be meant otherwise.
    pub(crate) leave_out: Option<fn(&str) -> bool>,
}

impl Choice {
    /// Understands arguments for test programs.
    pub(crate) fn of(arguments: &[String]) -> Result<Self> {
        let mut choice = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || match arguments.next() {
                Some(value) => Ok(value.clone()),
                None => bail!("`{argument}` of a test program needs a value"),
            };
            if argument == "--exact" {
                choice.exact = true;
            } else if argument == "--skip" {
                choice.skipped.push(value()?);
            } else if let Some(name) = argument.strip_prefix("--skip=") {
                choice.skipped.push(name.to_owned());
            } else if WITH_VALUE.contains(&argument.as_str()) {
                let value = value()?;
                choice.options.extend([argument.clone(), value]);
            } else if argument.starts_with('-') {
                choice.options.push(argument.clone());
            } else {
                choice.words.push(argument.clone());
            }
        }
        Ok(choice)
    }

    /// Of the tests that a program lists, the names of those of `suites` that are meant.
    pub(crate) fn among<'a>(&self, listed: &'a str, suites: &[&str]) -> Vec<&'a str> {
        let names = listed
            .lines()
            .filter_map(|line| line.trim().strip_suffix(": test"));
        names.filter(|name| self.takes(name, suites)).collect()
    }

    fn takes(&self, name: &str, suites: &[&str]) -> bool {
        let Some((suite, rest)) = name.split_once("::") else {
            return false;
        };
        let is = |word: &String| {
            if self.exact {
                name == word || rest == word
            } else {
                name.contains(word.as_str())
            }
        };
        suites.contains(&suite)
            && (self.words.is_empty() || self.words.iter().any(is))
            && !self.skipped.iter().any(is)
            && !self.leave_out.is_some_and(|left_out| left_out(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "traffic::udp/connected: test\ntraffic::policy/udp: test\n\
                          conformance::ebpf/udp/connected: test\nrestart::world::kept: test\n\
                          world::kept: test\n\n5 tests, 0 benchmarks\n";

    fn chosen(arguments: &[&str], suites: &[&str]) -> Vec<&'static str> {
        let arguments: Vec<_> = arguments.iter().map(|&word| word.to_owned()).collect();
        Choice::of(&arguments).unwrap().among(LISTED, suites)
    }

    #[test]
    fn suites_are_told_apart_whatever_their_tests_are_called() {
        assert_eq!(chosen(&[], &["world"]), ["world::kept"]);
        assert_eq!(chosen(&["kept"], &["restart"]), ["restart::world::kept"]);
        let both = ["restart::world::kept", "world::kept"];
        assert_eq!(chosen(&[], &["restart", "world"]), both);
    }

    #[test]
    fn words_skips_and_whole_names_count_within_a_suite() {
        let udp = ["traffic::udp/connected", "traffic::policy/udp"];
        assert_eq!(chosen(&["udp"], &["traffic"]), udp);
        assert_eq!(
            chosen(&["udp", "--skip", "policy/"], &["traffic"]),
            udp[..1]
        );
        assert_eq!(chosen(&["--skip=udp"], &["traffic"]), [""; 0]);
        let exact = ["--exact", "udp/connected"];
        assert_eq!(chosen(&exact, &["traffic"]), udp[..1]);
    }

    #[test]
    fn what_is_not_about_names_is_handed_on() {
        let arguments = ["--test-threads", "1", "udp", "--nocapture"].map(str::to_owned);
        let options = Choice::of(&arguments).unwrap().options;
        assert_eq!(options, ["--test-threads", "1", "--nocapture"]);
        let said = Choice::of(&["--skip".to_owned()]).unwrap_err();
        assert!(said.to_string().contains("`--skip`"), "{said}");
    }
}
