//! The commands that the README gives to somebody who has just cloned the repository.

use std::fs;

use anyhow::{Context, Result, ensure};
use xtask::paths;

/// The section they are in.
const SECTION: &str = "## Try it";

/// The commands, in order.
pub(super) fn commands() -> Result<Vec<String>> {
    let file = paths::workspace_root().join("README.md");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let found = commands_in(&text);
    ensure!(
        !found.is_empty(),
        "{} has no block of commands below `{SECTION}`: nothing says what to run",
        file.display()
    );
    Ok(found)
}

/// Lines of blocks marked as `sh` in that section.
fn commands_in(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut in_section, mut in_block) = (false, false);
    for line in text.lines() {
        match line {
            "```sh" => in_block = true,
            "```" => in_block = false,
            _ if in_block && in_section && !line.trim().is_empty() => found.push(line.to_owned()),
            _ if line.starts_with("## ") && !in_block => in_section = line == SECTION,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_the_section() {
        let text = "## Before\n```sh\na\n```\n## Try it\ntext\n```sh\nb c\n\nd\n```\n\
                    ```text\ne\n## no heading\n```\n## After\n```sh\nf\n```\n";
        assert_eq!(commands_in(text), ["b c", "d"]);
    }

    #[test]
    fn our_readme_names_the_two_that_do_their_own_set_up() {
        assert_eq!(
            commands().unwrap(),
            ["cargo xtask demo", "cargo xtask test"]
        );
    }
}
