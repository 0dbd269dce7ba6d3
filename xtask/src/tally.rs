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
}

impl Tally {
    /// Counts the line if it is the last one of a test program:
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; …`. Keeps the name in
    /// `test a_test ... FAILED`.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(name) = failed(line) {
            self.names.push(name.to_owned());
        }
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

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.names.extend(other.names);
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
            }
        );
        assert_eq!(tally.to_string(), "13 passed, 2 failed");
    }
}
