//! What `--help` looks like.

use std::iter;

use clap::{Arg, Command, CommandFactory};

use super::{Cli, FIRST};

#[test]
fn every_flag_stands_under_a_heading_and_what_matters_most_comes_first() {
    let mut root = Cli::command();
    root.build();
    // That of the help has none of its own.
    let is_ours = |command: &&Command| command.get_name() != "help";
    let commands = root.get_subcommands().filter(is_ours);
    for command in commands.flat_map(|one| iter::once(one).chain(one.get_subcommands())) {
        let shown = |arg: &&Arg| !arg.is_hide_set() && arg.get_id() != "help";
        let flags: Vec<&Arg> = command.get_arguments().filter(shown).collect();
        for flag in flags.iter().filter(|flag| flag.get_long().is_some()) {
            let heading = flag.get_help_heading();
            assert!(heading.is_some(), "{}: {flag}", command.get_name());
        }
        if command.get_name() != "run" {
            continue;
        }
        let is_first = |flag: &&&Arg| flag.get_help_heading() == Some(FIRST);
        let first = flags.iter().filter(is_first);
        let first: Vec<_> = first.filter_map(|flag| flag.get_long()).collect();
        let expected = [
            "node-name",
            "config",
            "proxy-mode",
            "kubeconfig",
            "take-over",
        ];
        assert_eq!(first, expected);
        // Headings stand in the order of their first flags.
        assert_eq!(flags[0].get_help_heading(), Some(FIRST));
    }
}
