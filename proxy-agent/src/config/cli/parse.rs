//! A command line as a whole: parsed, and as a table of flags for whoever asks the running agent
//! what it was started with.

use std::{collections::BTreeMap, ffi::OsString};

use clap::{ArgMatches, Command as Parser, CommandFactory as _, Error, FromArgMatches as _};

use super::{Cli, Command};

impl Cli {
    /// Reads a command line, program included. Ends the process where it cannot be read, or where
    /// help was asked for.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Self {
        Self::try_read(arguments).unwrap_or_else(|error| error.exit())
    }

    /// The same, without an end.
    pub fn try_read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Error> {
        let mut root = Self::command();
        let matches = root.try_get_matches_from_mut(arguments)?;
        let mut cli = Self::from_arg_matches(&matches).map_err(|error| error.format(&mut root))?;
        let of_subcommand = matches.subcommand().and_then(|(name, matches)| {
            let command = root.find_subcommand(name)?;
            Some(flags(command, matches))
        });
        let flags = of_subcommand.unwrap_or_else(|| flags(&root, &matches));
        match &mut cli.command {
            None => cli.run.agent.flags = flags,
            Some(Command::Run(args)) => args.agent.flags = flags,
            Some(Command::Brain(args)) => args.agent.flags = flags,
            Some(_) => {}
        }
        Ok(cli)
    }
}

/// Each flag with its value, without dashes: none for those that were not given and have no default.
/// Those that `--help` leaves out only where they were given.
fn flags(command: &Parser, matches: &ArgMatches) -> BTreeMap<String, String> {
    let named = command.get_arguments().filter_map(|flag| {
        let name = flag.get_long().filter(|name| *name != "help")?;
        let values = matches.try_get_raw(flag.get_id().as_str()).ok().flatten();
        let given = values.map(|values| {
            let texts = values.map(|value| value.to_string_lossy().into_owned());
            texts.collect::<Vec<_>>().join(",")
        });
        (given.is_some() || !flag.is_hide_set())
            .then(|| (name.to_owned(), given.unwrap_or_default()))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags_of(line: &str) -> BTreeMap<String, String> {
        let mut cli = Cli::try_read(line.split(' ').map(OsString::from)).unwrap();
        match cli.command.take() {
            Some(Command::Run(args)) => args.agent.flags,
            Some(Command::Brain(args)) => args.agent.flags,
            _ => cli.run.agent.flags,
        }
    }

    #[test]
    fn flags_are_told_as_they_were_given_or_with_their_defaults() {
        let lines = [
            "kube-proxy --v=2 --nodeport-addresses=10.0.0.0/8,primary --take-over",
            "proxy-agent run --v=2 --nodeport-addresses=10.0.0.0/8,primary --take-over",
        ];
        for line in lines {
            let flags = flags_of(line);
            for (flag, value) in [
                ("v", "2"),
                ("nodeport-addresses", "10.0.0.0/8,primary"),
                ("take-over", "true"),
                ("log-level", ""),
                ("config", ""),
            ] {
                assert_eq!(
                    flags.get(flag).map(String::as_str),
                    Some(value),
                    "{line}: {flag}"
                );
            }
            assert!(!flags.contains_key("vmodule"), "nobody gave it");
        }
        assert_eq!(
            flags_of("proxy-agent brain --elsewhere")["elsewhere"],
            "true"
        );
    }
}
