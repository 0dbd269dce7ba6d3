//! The rule about skipping, for commands: the same as `requires` in the tests has for suites.

use std::env;
use std::fs;

use anyhow::{Context, Result, ensure};
use xtask::paths;

use crate::setup::apt;

/// The list of skips that are allowed everywhere, relative to the workspace root.
const LIST: &str = "tests/allowed-skips.txt";

/// Tells of a skip. Fails where there must be none: in CI and for root, unless it is listed.
pub(crate) fn told(what: &str, need: &str, reason: &str) -> Result<()> {
    eprintln!("SKIPPED: {what} needs {need}: {reason}");
    let strict = env::var("CI").is_ok_and(|ci| ci == "true") || apt::is_root();
    let list = fs::read_to_string(paths::workspace_root().join(LIST))
        .with_context(|| format!("reading {LIST}"))?;
    ensure!(
        !strict || is_listed(&list, what, need),
        "{what} cannot be skipped here: {reason}; provide it, or list `{what} {need}` in {LIST}"
    );
    Ok(())
}

fn is_listed(list: &str, what: &str, need: &str) -> bool {
    list.lines()
        .map(|line| line.split('#').next().unwrap_or_default())
        .any(|line| line.split_whitespace().eq([what, need]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_pairs_are_allowed() {
        let list = "# comment\n\nwindows wine64 # not packaged there\n";
        assert!(is_listed(list, "windows", "wine64"));
        assert!(!is_listed(list, "windows", "root"));
        assert!(!is_listed(list, "comment", "wine64"));
    }
}
