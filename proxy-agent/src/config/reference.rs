//! The reference pages `docs/reference/cli.md` and `config.md`, made from the same
//! definitions that the program uses.

mod kube_proxy;

use std::fmt::Write as _;

use clap::{Arg, CommandFactory};

pub use self::kube_proxy::config;
use super::cli::{Cli, EXIT_CODES};

const GENERATED: &str = "<!-- Generated from the code by `cargo xtask docs`; do not edit. -->";

/// Every command and flag.
pub fn cli() -> String {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut page = format!("# Command line\n\n{GENERATED}\n\n");
    let about = root.get_long_about().or(root.get_about());
    line(
        &mut page,
        &about.map(ToString::to_string).unwrap_or_default(),
    );
    for command in root
        .get_subcommands()
        .filter(|command| command.get_name() != "help")
    {
        let about = command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        line(
            &mut page,
            &format!("\n## `proxy-agent {}`\n\n{about}.", command.get_name()),
        );
        let flags: Vec<&Arg> = command
            .get_arguments()
            .filter(|flag| flag.get_id() != "help" && !flag.is_hide_set())
            .collect();
        if !flags.is_empty() {
            line(
                &mut page,
                "\n| flag | default | meaning |\n| --- | --- | --- |",
            );
        }
        for flag in flags {
            line(&mut page, &row(flag));
        }
    }
    let codes: String = EXIT_CODES
        .lines()
        .skip(1)
        .fold(String::new(), |mut rows, code| {
            if let Some((code, meaning)) = code.trim().split_once("  ") {
                line(&mut rows, &format!("| {code} | {meaning} |"));
            }
            rows
        });
    line(
        &mut page,
        &format!("\n## Exit codes\n\n| code | meaning |\n| --- | --- |\n{codes}"),
    );
    page.truncate(page.trim_end().len());
    page + "\n"
}

fn row(flag: &Arg) -> String {
    let mut names: Vec<String> = Vec::new();
    names.extend(flag.get_short().map(|short| format!("`-{short}`")));
    let aliases = flag.get_visible_aliases().unwrap_or_default();
    let longs = flag.get_long().into_iter().chain(aliases);
    names.extend(longs.map(|long| format!("`--{long}`")));
    let takes_value = flag.get_action().takes_values();
    let value = flag
        .get_value_names()
        .and_then(|names| names.first())
        .filter(|_| takes_value);
    let value = value.map(|value| format!(" `{value}`")).unwrap_or_default();
    let defaults: Vec<_> = flag
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    let default = if defaults.is_empty() || !takes_value {
        String::new()
    } else {
        defaults.join(", ")
    };
    let meaning = flag.get_help().map(ToString::to_string).unwrap_or_default();
    format!("| {}{value} | {default} | {meaning} |", names.join(", "))
}

fn line(page: &mut String, text: &str) {
    writeln!(page, "{text}").expect("writing to a string cannot fail");
}
