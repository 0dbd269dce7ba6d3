//! Scenarios as tests, against whatever is under test.

use std::{num::NonZero, process::ExitCode, sync::Arc, thread};

use anyhow::{Context as _, Result};
use clap::Parser;
use libtest_mimic::{Arguments, Trial};
use proxy_agent::cluster::manifests::load_once;
use proxy_model::{NodeState, compute};
use proxy_tests::{
    emulated,
    requires::{self, Need},
    scenario::{self, Scenario, Step},
};

/// Tests at once, for each processor: for the most part they wait, for processes to start and for
/// nothing to happen.
const AT_ONCE: usize = 2;

/// One of the suites of a program.
pub struct Suite {
    /// Its name, with which those of its tests begin, as if they were functions of a module.
    pub name: &'static str,
    /// What it cannot do without.
    pub needs: &'static [&'static [Need]],
    /// Its tests.
    pub trials: fn(&[Arc<Scenario>]) -> Vec<Trial>,
}

/// As any test program takes them: with more than one filter, which libtest-mimic lacks.
#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    arguments: Arguments,
    /// Further filters: what one of them selects is run
    #[arg(value_name = "FILTER")]
    more: Vec<String>,
}

/// Runs those of the tests that the command line selects.
pub fn main(suites: &[Suite]) -> ExitCode {
    let CommandLine {
        mut arguments,
        more,
    } = CommandLine::parse();
    let filters: Vec<String> = arguments.filter.take().into_iter().chain(more).collect();
    if arguments.test_threads.is_none() && !emulated::is_emulated() {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        arguments.test_threads = Some(AT_ONCE * processors);
    }
    // One suite reads what the one before it wrote into the same files.
    let together = if scenario::is_blessing() {
        1
    } else {
        suites.len()
    };
    for suites in suites.chunks(together) {
        let scenarios: Vec<_> = match Scenario::all() {
            Ok(scenarios) => scenarios.into_iter().map(Arc::new).collect(),
            Err(error) => {
                eprintln!("{error:#}");
                return ExitCode::FAILURE;
            }
        };
        let trials = suites
            .iter()
            .flat_map(|suite| chosen(suite, &scenarios, &arguments, &filters))
            .collect();
        let conclusion = libtest_mimic::run(&arguments, trials);
        if conclusion.has_failed() {
            return conclusion.exit_code();
        }
    }
    ExitCode::SUCCESS
}

/// The tests of `suite` that are selected; ignored if they cannot run here.
fn chosen(
    suite: &Suite,
    scenarios: &[Arc<Scenario>],
    arguments: &Arguments,
    filters: &[String],
) -> Vec<Trial> {
    let is_chosen = |name: &str| {
        filters.is_empty()
            || filters.iter().any(|filter| {
                if arguments.exact {
                    name == filter
                } else {
                    name.contains(filter)
                }
            })
    };
    let trials: Vec<_> = (suite.trials)(scenarios)
        .into_iter()
        .filter(|trial| is_chosen(trial.name()) && !arguments.is_filtered_out(trial))
        .collect();
    let skipped =
        !trials.is_empty() && !arguments.list && !requires::met(suite.name, &suite.needs.concat());
    let trials = trials.into_iter();
    trials
        .map(|trial| trial.with_ignored_flag(skipped))
        .collect()
}

/// All scenarios, each played by `play` with its states against `under`. The name of a test is
/// that of its scenario behind `prefix`.
pub fn of_scenarios<T: Clone + Send + 'static>(
    prefix: &str,
    scenarios: &[Arc<Scenario>],
    under: &T,
    play: fn(&Scenario, &[NodeState], &T) -> Result<()>,
) -> Vec<Trial> {
    let trial = |scenario: &Arc<Scenario>| {
        let (scenario, under) = (Arc::clone(scenario), under.clone());
        of(format!("{prefix}{}", scenario.name), move || {
            play(&scenario, &states(&scenario)?, &under)
        })
    };
    scenarios.iter().map(trial).collect()
}

/// One test.
pub fn of(name: String, test: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    Trial::test(name, move || {
        Ok(test().map_err(|error| format!("{error:#}"))?)
    })
}

/// The node-local state after each step.
pub fn states(scenario: &Scenario) -> Result<Vec<NodeState>> {
    let state = |step: &Step| {
        let dir = tempfile::tempdir().context("cannot make a directory for manifests")?;
        step.write(dir.path())?;
        let events = load_once(vec![dir.path().to_owned()])?;
        let events = std::iter::once(scenario.settings.host_addresses()).chain(events);
        Ok(compute(scenario.settings.model.clone(), events))
    };
    scenario.steps.iter().map(state).collect()
}
