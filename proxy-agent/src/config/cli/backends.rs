//! Flags of the backends: each describes its own, and nobody else names them.

use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches,
    builder::{PossibleValue, PossibleValuesParser, StringValueParser},
    parser::ValueSource,
    value_parser,
};
use proxy_backend::{BackendKind, Flag, Given, Takes};

use super::{DATAPLANE, kube_proxy::switch};
use crate::{backends, config::kube_proxy};

/// What a command takes for backends: `check` has use for some flags only.
#[derive(Debug, Clone, Default)]
pub struct BackendArgs<const CHECK: bool> {
    /// What was given.
    pub given: Given,
}

/// Of `run`.
pub type RunBackendArgs = BackendArgs<false>;

/// Of `check`.
pub type CheckBackendArgs = BackendArgs<true>;

/// The flags of `all`.
fn flags(all: &[BackendKind]) -> impl Iterator<Item = &'static Flag> {
    all.iter().flat_map(|kind| kind.flags())
}

fn arg(flag: &Flag, help: &'static str) -> Arg {
    let arg = Arg::new(flag.name).long(flag.name).help(help);
    let arg = arg.help_heading(DATAPLANE);
    match flag.takes {
        Takes::Nothing => arg.action(ArgAction::SetTrue),
        Takes::Switch => arg
            .action(ArgAction::Set)
            .value_name("BOOL")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_parser(switch),
        // Whoever reads the file has to check the word anyway, and tells all mistakes at once.
        Takes::Choice(words) => arg
            .action(ArgAction::Set)
            .value_name(words)
            .value_parser(StringValueParser::new()),
        Takes::Text { name, .. } => arg
            .action(ArgAction::Set)
            .value_name(name)
            .value_parser(StringValueParser::new()),
        Takes::Path(name) => arg
            .action(ArgAction::Set)
            .value_name(name)
            .value_parser(value_parser!(std::path::PathBuf)),
        Takes::Texts(name) | Takes::Numbers(name) => arg
            .action(ArgAction::Append)
            .value_name(name)
            .value_parser(StringValueParser::new()),
    }
}

/// Adds the flags of `all` that `run` takes.
pub(crate) fn of_run(all: &[BackendKind], command: Command) -> Command {
    command.args(flags(all).map(|flag| arg(flag, flag.help)))
}

/// Adds the flags of `all` that `check` takes.
pub(crate) fn of_check(all: &[BackendKind], command: Command) -> Command {
    command.args(flags(all).filter_map(|flag| Some(arg(flag, flag.check_help?))))
}

/// What was given of the flags of `all`.
pub(crate) fn given(all: &[BackendKind], matches: &ArgMatches) -> Given {
    let mut given = Given::default();
    for flag in flags(all) {
        // `check` does not know all of them.
        let known = matches.ids().any(|id| id == flag.name);
        if known && matches.value_source(flag.name) == Some(ValueSource::CommandLine) {
            let values = match flag.takes {
                Takes::Nothing => Vec::new(),
                Takes::Switch => {
                    let on = matches.get_one::<bool>(flag.name).copied();
                    vec![on.unwrap_or_default().to_string().into()]
                }
                Takes::Choice(_)
                | Takes::Text { .. }
                | Takes::Path(_)
                | Takes::Texts(_)
                | Takes::Numbers(_) => {
                    let raw = matches.get_raw(flag.name).unwrap_or_default();
                    raw.map(ToOwned::to_owned).collect()
                }
            };
            given.insert(flag.name, values);
        }
    }
    given
}

impl RunBackendArgs {
    /// Those that stand for a field of the configuration file.
    pub fn of_fields(&self) -> Vec<kube_proxy::Given> {
        of_fields(backends::ALL, &self.given)
    }

    /// The others.
    pub fn of_no_field(&self) -> Given {
        of_no_field(backends::ALL, &self.given)
    }
}

fn of_fields(all: &[BackendKind], given: &Given) -> Vec<kube_proxy::Given> {
    let typed = flags(all).filter(|flag| flag.field.is_some() && given.is_given(flag.name));
    let typed = typed.map(|flag| kube_proxy::Given {
        flag: flag.name,
        paths: flag.field.as_slice(),
        text: match flag.takes {
            Takes::Nothing | Takes::Switch => given.is_on(flag.name).to_string(),
            Takes::Choice(_) | Takes::Text { .. } | Takes::Path(_) => {
                let last = given.texts(flag.name).last();
                last.unwrap_or_default().to_owned()
            }
            Takes::Texts(_) | Takes::Numbers(_) => {
                given.texts(flag.name).collect::<Vec<_>>().join(",")
            }
        },
    });
    typed.collect()
}

fn of_no_field(all: &[BackendKind], given: &Given) -> Given {
    let mut others = given.clone();
    for flag in flags(all).filter(|flag| flag.field.is_some()) {
        others.remove(flag.name);
    }
    others
}

impl<const CHECK: bool> Args for BackendArgs<CHECK> {
    fn augment_args(command: Command) -> Command {
        let add = if CHECK { of_check } else { of_run };
        add(backends::ALL, command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const CHECK: bool> FromArgMatches for BackendArgs<CHECK> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = given(backends::ALL, matches);
        Ok(Self { given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The names of the backends, for a flag that takes one.
pub(super) fn names() -> PossibleValuesParser {
    let values = backends::ALL.iter().map(|kind| {
        let value = PossibleValue::new(kind.name());
        value.help(kind.programs())
    });
    PossibleValuesParser::new(values)
}

/// Says what `--backend-order` is when it is not given.
pub(super) fn order_help() -> String {
    let names: Vec<_> = backends::ALL.iter().map(|kind| kind.name()).collect();
    format!(
        "Backends in order of preference, separated by commas; others are not used, but for one that \
         the mode requires. Not with a mode that names a packet backend [default: {}]",
        names.join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::toy::TOY;

    #[test]
    fn a_flag_of_a_backend_is_in_the_help_and_is_kept_as_given() {
        let mut run = of_run(&[TOY], Command::default().name("run"));
        let help = run.render_help().to_string();
        assert!(help.contains("--toy-colour <COLOUR>"), "{help}");
        assert!(help.contains("Colour of the bricks"), "{help}");
        let typed = ["run", "--toy-colour", "red", "--toy-colour=plaid"];
        let given = given(&[TOY], &run.get_matches_from(typed));
        let colours: Vec<_> = given.texts("toy-colour").collect();
        assert_eq!(colours, ["red", "plaid"]);
        let mut mistakes = Vec::new();
        TOY.check(&given, &mut mistakes);
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        assert_eq!(
            mistakes[0].to_string(),
            "--toy-colour plaid: no colour; choose another one"
        );
        let mut check = of_check(&[TOY], Command::default().name("check"));
        let help = check.render_help().to_string();
        assert!(help.contains("Colour that the bricks would have"), "{help}");
    }

    #[test]
    fn a_flag_that_has_a_field_sets_it() {
        let typed = |arguments: &[&str]| {
            let run = of_run(&[TOY], Command::default().name("run")).args_override_self(true);
            let all = ["run", "--toy-colour=red"].iter().chain(arguments);
            let given = given(&[TOY], &run.get_matches_from(all));
            let others = of_no_field(&[TOY], &given);
            assert!(others.is_given("toy-colour") && !others.is_given("toy-striped"));
            of_fields(&[TOY], &given)
        };
        let striped = |text: &str| kube_proxy::Given {
            flag: "toy-striped",
            paths: &["culvert.toyStriped"],
            text: text.to_owned(),
        };
        assert_eq!(typed(&[]), []);
        assert_eq!(typed(&["--toy-striped"]), [striped("true")]);
        assert_eq!(typed(&["--toy-striped=F"]), [striped("false")]);
        let twice = ["--toy-striped", "--toy-striped=false"];
        assert_eq!(typed(&twice), [striped("false")]);
    }
}
