//! The rule that the lock file is an input: every command of cargo's that reads it, in sources, in
//! documents and for people to type, says `--locked`. Without that a build takes what is newest that
//! day, and two people build two programs.

use super::{File, Finding};

/// Subcommands that resolve dependencies.
const SUBCOMMANDS: &[&str] = &[
    "bench", "build", "check", "clippy", "doc", "install", "metadata", "package", "run", "rustc",
    "test", "tree",
];

/// What settles it. Offline there is nothing newer.
const SETTLED: &[&str] = &["--locked", "--offline"];

/// How a file in Rust shows that it starts cargo.
const STARTS: &[&str] = &["\"CARGO\"", ".cargo(", "Command::new(\"cargo\")"];

/// Where names for commands are.
const CONFIGURATION: &str = ".cargo/config.toml";

/// How many lines of Rust before and after the subcommand belong to its arguments.
const AROUND: (usize, usize) = (2, 10);

/// Checks a file.
pub(super) fn check(file: &File) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().collect();
    let rust = file.has_extension("rs");
    let starts_cargo = rust && STARTS.iter().any(|start| file.text.contains(start));
    let documents = ["md", "toml", "sh", "yaml", "yml", "txt"];
    let document = documents.iter().any(|kind| file.has_extension(kind)) || file.path == ".ci/run";
    let mut fenced = false;
    let mut findings = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        let comment = rust && line.trim_start().starts_with("//");
        let open = if document || comment {
            let of_alias = alias(line).filter(|_| file.path == CONFIGURATION);
            let mut commands = typed(line, fenced).chain(of_alias);
            commands.any(|command| !is_settled(command))
        } else if starts_cargo {
            let from = index.saturating_sub(AROUND.0);
            let to = (index + AROUND.1).min(lines.len());
            is_started(line) && !lines[from..to].iter().any(|line| is_settled(line))
        } else {
            false
        };
        if open {
            findings.push(Finding::Error(format!(
                "line {}: a command of cargo's without `--locked`",
                index + 1
            )));
        }
    }
    findings
}

fn is_settled(text: &str) -> bool {
    SETTLED.iter().any(|word| text.contains(word))
}

/// Commands with arguments in a line that is meant to be read, each to the end of its code span. One
/// without arguments is a name, except where a block of code has it to be typed.
fn typed(line: &str, fenced: bool) -> impl Iterator<Item = &str> {
    let spans = line.split("cargo ").skip(1);
    spans
        .filter_map(|after| after.split('`').next())
        .filter(move |command| {
            let mut words = command.split_whitespace();
            let known = words.next().is_some_and(|word| SUBCOMMANDS.contains(&word));
            known && (fenced || words.next().is_some_and(|word| word.starts_with('-')))
        })
}

/// What a name stands for.
fn alias(line: &str) -> Option<&str> {
    let command = line.split_once("= \"")?.1;
    let subcommand = command.split([' ', '"']).next()?;
    SUBCOMMANDS.contains(&subcommand).then_some(command)
}

/// Whether a line of Rust hands cargo one of these, as the first of its arguments.
fn is_started(line: &str) -> bool {
    SUBCOMMANDS.iter().any(|name| {
        let beginnings = [format!("args([\"{name}\""), format!("arg(\"{name}\"")];
        let alone = line.trim() == format!("\"{name}\",");
        alone || beginnings.iter().any(|begin| line.contains(begin))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(path: &str, text: &str) -> usize {
        check(&File {
            path: path.to_owned(),
            text: text.to_owned(),
        })
        .len()
    }

    #[test]
    fn a_command_to_be_typed_is_locked() {
        for line in [
            "```sh\ncargo build --release\n```\n",
            "```sh\ncargo test\n```\n",
            "| a | `cargo test --lib` | `cargo test --locked --lib` |\n",
        ] {
            assert_eq!(said("docs/a.md", line), 1, "{line}");
        }
        assert_eq!(said("a.rs", "//! Run it: `cargo run -p a`\n"), 1);
        assert_eq!(said(CONFIGURATION, "x = \"run --package x --\"\n"), 1);
        assert_eq!(
            said(CONFIGURATION, "x = \"run --locked --package x --\"\n"),
            0
        );
    }

    #[test]
    fn what_is_locked_or_only_named_is_fine() {
        for line in [
            "```sh\ncargo build --locked\ncargo xtask test\ncargo fmt --all\n```\n",
            "A plain `cargo build` needs none, and `cargo install` neither.\n",
            "What cargo run by itself would do.\n",
        ] {
            assert_eq!(said("docs/a.md", line), 0, "{line}");
        }
    }

    #[test]
    fn a_cargo_that_we_start_is_locked() {
        let start = "Command::new(env!(\"CARGO\"))\n    .args([\"build\", \"--quiet\"])\n";
        assert_eq!(said("tests/a.rs", start), 1);
        let split = ".cargo(root)\n.args([\n    \"build\",\n    \"--release\",\n])\n";
        assert_eq!(said("xtask/a.rs", split), 1);
        assert_eq!(said("tests/a.rs", &start.replace("quiet", "locked")), 0);
        assert_eq!(said("tests/a.rs", &start.replace("quiet", "offline")), 0);
        // Some other program's word.
        assert_eq!(
            said("tests/a.rs", "agent.args([\"run\", \"--quiet\"])\n"),
            0
        );
    }
}
