//! Counting tests, and naming those that failed, from what test programs print.

use std::fmt;
use std::ops::AddAssign;

/// How many tests ran, and how they ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Tests that failed.
    pub(crate) failed: u64,
    /// The names of those that failed, as far as they had a line of their own.
    pub(crate) names: Vec<String>,
    /// How what the first of them said begins.
    pub(crate) said: Vec<String>,
    /// How many lines are kept of the test that is just being told.
    left: usize,
}

/// As much is kept of what failed tests said: so many lines of so many tests, so many characters of a line.
const LINES: usize = 6;
const TESTS: usize = 4;
const CHARACTERS: usize = 400;

impl Tally {
    /// Counts the line if it is the last one of a test program:
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; …`. Keeps the name in
    /// `test a_test ... FAILED`.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(name) = failed(line) {
            self.names.push(name.to_owned());
        }
        self.keep(line);
        let Some(rest) = line.trim().strip_prefix("test result: ") else {
            return;
        };
        for part in rest.split(['.', ';']) {
            let mut words = part.split_whitespace();
            if let (Some(Ok(count)), Some(what)) =
                (words.next().map(str::parse::<u64>), words.next())
            {
                match what {
                    "passed" => self.passed += count,
                    "failed" => self.failed += count,
                    _ => {}
                }
            }
        }
    }
}

impl Tally {
    /// Keeps how each failed test begins to say what is wrong: `---- a_test stdout ----`, then what it printed.
    fn keep(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("---- ") {
            let headings = self.said.iter().filter(|one| one.starts_with("---- "));
            self.left = if headings.count() < TESTS { LINES } else { 0 };
            self.said
                .extend((self.left > 0).then(|| format!("---- {name}")));
        } else if line == "failures:" {
            self.left = 0;
        } else if self.left > 0 && !line.trim().is_empty() {
            self.left -= 1;
            self.said.push(line.chars().take(CHARACTERS).collect());
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.names.extend(other.names);
        self.said.extend(other.said);
    }
}

fn failed(line: &str) -> Option<&str> {
    let test = line.trim().strip_prefix("test ")?;
    Some(test.strip_suffix("... FAILED")?.trim())
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_programs_add_up() {
        let mut tally = Tally::default();
        for line in [
            "running 4 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.52s",
            "test a_test ... ok",
            "test another_test ... FAILED",
            "  test traffic::nodeport/udp            ... FAILED",
            "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 5 filtered out; finished in 1s",
        ] {
            tally.read(line);
        }
        assert_eq!(
            tally,
            Tally {
                passed: 13,
                failed: 2,
                names: vec![
                    "another_test".to_owned(),
                    "traffic::nodeport/udp".to_owned()
                ],
                ..Tally::default()
            }
        );
        assert_eq!(tally.to_string(), "13 passed, 2 failed");
    }

    #[test]
    fn how_failed_tests_begin_to_say_what_is_wrong_is_kept() {
        let mut tally = Tally::default();
        for line in ["said before", "failures:", "", "---- a_test stdout ----"] {
            tally.read(line);
        }
        for line in ["", &"x".repeat(1_000), "2", "3", "4", "5", "6", "7"] {
            tally.read(line);
        }
        for line in [
            "---- b ----",
            "wrong",
            "",
            "failures:",
            "    a_test",
            "    b",
        ] {
            tally.read(line);
        }
        let long = "x".repeat(400);
        let kept = [
            "---- a_test stdout ----",
            &long,
            "2",
            "3",
            "4",
            "5",
            "6",
            "---- b ----",
            "wrong",
        ];
        assert_eq!(tally.said, kept);
        for _ in 0..9 {
            tally.read("---- another ----");
        }
        assert_eq!(tally.said.len(), kept.len() + 2);
    }
}
