//! Scenarios as real traffic: the probes of every file, between real sockets, by the real agent.
//! What happens must be what the file says, and what the oracle allows. Needs root and BPF.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use libtest_mimic::{Arguments, Trial};
use proxy_agent::cluster::manifests::load_once;
use proxy_model::{NodeState, compute};
use proxy_tests::{
    requires::{self, PRIVILEGED},
    scenario::{Scenario, Step, traffic},
};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let scenarios = match Scenario::all() {
        Ok(scenarios) => scenarios,
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::FAILURE;
        }
    };
    let skipped = !arguments.list && !requires::met("traffic", PRIVILEGED);
    let trials = scenarios.into_iter().map(|scenario| {
        let name = scenario.name.clone();
        Trial::test(name, move || {
            Ok(run(&scenario).map_err(|error| format!("{error:#}"))?)
        })
        .with_ignored_flag(skipped)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn run(scenario: &Scenario) -> Result<()> {
    let states: Result<Vec<_>> = scenario
        .steps
        .iter()
        .map(|step| state(scenario, step))
        .collect();
    traffic::run(scenario, &states?)
}

fn state(scenario: &Scenario, step: &Step) -> Result<NodeState> {
    let dir = tempfile::tempdir().context("cannot make a directory for manifests")?;
    step.write(dir.path())?;
    let events = load_once(vec![dir.path().to_owned()])?;
    let events = std::iter::once(scenario.settings.host_addresses()).chain(events);
    Ok(compute(scenario.settings.model.clone(), events))
}
