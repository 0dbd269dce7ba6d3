//! The reference pages `docs/reference/cli.md`, `config.md` and `maps.md`, made from the same
//! definitions that the program uses.

mod kube_proxy;

use std::fmt::Write as _;

use clap::{Arg, CommandFactory};
use proxy_common::{
    FLOWS_ABI, SERVICES_ABI,
    names::{MAPS, MapGroup, MapShape, PARKED, SOCKET_PROGRAMS},
};

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

/// Every map and program of the eBPF backend.
pub fn maps() -> String {
    let mut page = format!(
        "# Maps and programs of the eBPF backend\n\n{GENERATED}\n\nPinned under `--pin-dir`: maps \
         of the first group in `services-v{SERVICES_ABI}/`, of the second in `flows-v{FLOWS_ABI}/`, \
         links in `links/`.\nPorts are in host byte order, addresses are 16 bytes with IPv4 mapped \
         into IPv6.\nThe layout of every key and value is in `proxy-common`.\n`bpftool map dump \
         pinned` names the fields; it shows addresses as bytes. With addresses in words, \
         `proxy-agent state` tells what the maps should hold, `proxy-agent state --kernel` where \
         they do not, and `proxy-agent render --backend ebpf` every entry.\n"
    );
    let groups = [
        (
            "Service maps, rebuilt from the desired state at any time",
            MapGroup::Services,
        ),
        ("Flow maps, what sockets remember", MapGroup::Flows),
    ];
    for (title, group) in groups {
        line(&mut page, &format!("\n## {title}\n"));
        line(
            &mut page,
            "| map | kind | key | value | entries | `--map-size` | holds |",
        );
        line(&mut page, "| --- | --- | --- | --- | --- | --- | --- |");
        for shape in MAPS.iter().filter(|shape| shape.group == group) {
            line(&mut page, &map_row(shape));
        }
    }
    line(&mut page, "\n## Programs, in the order they are attached\n");
    for name in SOCKET_PROGRAMS {
        line(&mut page, &format!("- `{name}`"));
    }
    page
}

fn map_row(shape: &MapShape) -> String {
    // Numbers of `enum bpf_map_type`, linux/bpf.h.
    let kind = match shape.kind {
        1 => "hash",
        2 => "array",
        6 => "per-CPU array",
        9 => "LRU hash",
        24 => "socket storage",
        _ => "other",
    };
    let entries = match shape.entries {
        0 => "one a socket".to_owned(),
        entries if shape.gives_way() => format!("{entries}, and {PARKED} a CPU"),
        entries => entries.to_string(),
    };
    format!(
        "| `{}` | {kind} | {} B | {} B | {entries} | {} | {} |",
        shape.name,
        shape.key_size,
        shape.value_size,
        if shape.sizable { "yes" } else { "no" },
        shape.about
    )
}

fn line(page: &mut String, text: &str) {
    writeln!(page, "{text}").expect("writing to a string cannot fail");
}
