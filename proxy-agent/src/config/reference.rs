//! The reference pages `docs/reference/cli.md` and `config*`, made from the same
//! definitions that the program uses.

mod kube_proxy;

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory};

pub use self::kube_proxy::{config, config_schema, config_version};
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
    for command in root.get_subcommands() {
        describe(&mut page, command, "proxy-agent");
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

/// A command, or those that it consists of.
fn describe(page: &mut String, command: &Command, under: &str) {
    let name = format!("{under} {}", command.get_name());
    if command.has_subcommands() {
        let parts = command.get_subcommands();
        let parts = parts.filter(|part| part.get_name() != "help");
        return parts.for_each(|part| describe(page, part, &name));
    }
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    line(page, &format!("\n## `{name}`\n\n{about}."));
    let flags: Vec<&Arg> = command
        .get_arguments()
        .filter(|flag| flag.get_id() != "help" && !flag.is_hide_set())
        .collect();
    if !flags.is_empty() {
        line(page, "\n| flag | default | meaning |\n| --- | --- | --- |");
    }
    for flag in flags {
        line(page, &row(flag));
    }
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
