//! Scenarios as tests, against whatever is under test.

use std::{process::ExitCode, sync::Arc};

use anyhow::{Context as _, Result};
use libtest_mimic::{Arguments, Trial};
use proxy_agent::cluster::manifests::load_once;
use proxy_model::{NodeState, compute};
use proxy_tests::{
    requires::{self, Need},
    scenario::{Scenario, Step},
};

/// Runs those of the trials that the command line selects as the suite `name`.
pub fn run(
    name: &'static str,
    needs: &[Need],
    trials: impl FnOnce(Vec<Arc<Scenario>>) -> Vec<Trial>,
) -> ExitCode {
    let arguments = Arguments::from_args();
    let scenarios = match Scenario::all() {
        Ok(scenarios) => scenarios.into_iter().map(Arc::new).collect(),
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::FAILURE;
        }
    };
    let skipped = !arguments.list && !requires::met(name, needs);
    let trials = trials(scenarios).into_iter();
    let trials = trials.map(|trial| trial.with_ignored_flag(skipped));
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// All scenarios, each played by `play` with its states against `under`.
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
