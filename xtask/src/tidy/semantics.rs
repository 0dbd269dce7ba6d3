//! Rules about `docs/semantics.md`, the list of behaviours: each row links to a scenario file that
//! proves it, or to a suite, and each scenario file is linked to from a row.

use std::collections::BTreeSet;

use super::{File, Finding};

/// The page.
pub(super) const PAGE: &str = "docs/semantics.md";
/// Where scenario files are.
const SCENARIOS: &str = "tests/scenarios/";
/// Where suites are: they prove what no scenario file can say.
const SUITES: &str = "tests/suites/";

/// Checks the page against `paths`, all tracked files.
pub(super) fn check(page: &File, paths: &BTreeSet<String>) -> Vec<Finding> {
    let scenarios = paths.iter().filter(|path| path.starts_with(SCENARIOS));
    let mut unlinked: BTreeSet<&str> = scenarios.map(String::as_str).collect();
    let mut known = unlinked.clone();
    known.extend(
        paths
            .iter()
            .filter(|path| path.starts_with(SUITES))
            .map(String::as_str),
    );
    let mut findings = Vec::new();
    let mut error = |text: String| findings.push(Finding::Error(text));
    for (number, row) in rows(&page.text) {
        let mut is_proved = false;
        for target in targets(row) {
            is_proved |= known.contains(&*target);
            unlinked.remove(&*target);
            if !known.contains(&*target) {
                error(format!("line {number}: there is no file {target}"));
            }
        }
        if !is_proved {
            error(format!(
                "line {number}: this behaviour has no link to a scenario file or suite that proves it"
            ));
        }
    }
    for path in unlinked {
        error(format!("no row links to {path}: which behaviour is that?"));
    }
    findings
}

/// The rows of all tables with their line numbers, without the two lines that begin a table.
fn rows(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut depth = 0;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        depth = if line.starts_with('|') { depth + 1 } else { 0 };
        depth > 2
    })
}

/// The scenario files and suites that a row links to, as paths from the workspace root.
fn targets(row: &str) -> impl Iterator<Item = String> {
    let links = row.split("](../").skip(1);
    links
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| target.starts_with(SCENARIOS) || target.starts_with(SUITES))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# Semantics\n\n| behaviour | shown by |\n| --- | --- |\n";

    fn said(rows: &str, scenarios: &[&str]) -> Vec<String> {
        let page = File {
            path: PAGE.to_owned(),
            text: [HEAD, rows].concat(),
        };
        let paths = scenarios
            .iter()
            .map(|path| format!("{SCENARIOS}{path}.txt"));
        let others = ["docs/semantics.md", "tests/suites/ask.rs"].map(str::to_owned);
        let findings = check(&page, &paths.chain(others).collect());
        let text = |finding| match finding {
            Finding::Error(text) | Finding::Warning(text) => text,
        };
        findings.into_iter().map(text).collect()
    }

    #[test]
    fn rows_and_scenario_files_belong_together() {
        let one = "| It works | [a](../tests/scenarios/a.txt), [b](../tests/scenarios/b.txt) |\n";
        assert!(said(one, &["a", "b"]).is_empty());
        let error = |rows: &str, scenarios: &[&str], part: &str| {
            let said = said(rows, scenarios);
            let found = said.iter().any(|text| text.contains(part));
            assert!(found, "{part:?} is not in {said:?}");
        };
        error(
            one,
            &["a"],
            "line 5: there is no file tests/scenarios/b.txt",
        );
        error(
            one,
            &["a", "b", "c"],
            "no row links to tests/scenarios/c.txt",
        );
        error(
            "| It works | [a](README.md), trust me |\n",
            &[],
            "line 5: this behaviour has no link",
        );
        assert!(said("| It works | [suite](../tests/suites/ask.rs) |\n", &[]).is_empty());
        error(
            "| It works | [suite](../tests/suites/gone.rs) |\n",
            &[],
            "line 5: there is no file tests/suites/gone.rs",
        );
        error(
            "| It works | |\n",
            &[],
            "line 5: this behaviour has no link",
        );
    }

    #[test]
    fn every_table_has_its_own_head() {
        let two = format!("| A | [a](../tests/scenarios/a.txt) |\n\n{HEAD}| B | |\n");
        assert_eq!(said(&two, &["a"]).len(), 1);
    }
}
