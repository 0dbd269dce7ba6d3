//! Every scenario as one test, against whatever is under test.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use libtest_mimic::{Arguments, Trial};
use proxy_agent::cluster::manifests::load_once;
use proxy_model::{NodeState, compute};
use proxy_tests::{
    requires::{self, PRIVILEGED},
    scenario::{Scenario, Step, subject::Under, traffic},
};

/// Runs the scenarios that the command line selects as the suite `name`.
pub fn run(name: &'static str, under: &Under) -> ExitCode {
    let arguments = Arguments::from_args();
    let scenarios = match Scenario::all() {
        Ok(scenarios) => scenarios,
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::FAILURE;
        }
    };
    let skipped = !arguments.list && !requires::met(name, PRIVILEGED);
    let trials = scenarios.into_iter().map(|scenario| {
        let under = under.clone();
        Trial::test(scenario.name.clone(), move || {
            Ok(play(&scenario, &under).map_err(|error| format!("{error:#}"))?)
        })
        .with_ignored_flag(skipped)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn play(scenario: &Scenario, under: &Under) -> Result<()> {
    let states: Result<Vec<_>> = scenario
        .steps
        .iter()
        .map(|step| state(scenario, step))
        .collect();
    traffic::run(scenario, &states?, under)
}

fn state(scenario: &Scenario, step: &Step) -> Result<NodeState> {
    let dir = tempfile::tempdir().context("cannot make a directory for manifests")?;
    step.write(dir.path())?;
    let events = load_once(vec![dir.path().to_owned()])?;
    let events = std::iter::once(scenario.settings.host_addresses()).chain(events);
    Ok(compute(scenario.settings.model.clone(), events))
}
