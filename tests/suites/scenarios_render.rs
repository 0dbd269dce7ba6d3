//! Scenarios against the renderer of the eBPF backend: what it would program must be what the
//! file says, where it says so. Needs no privileges. With `CULVERT_BLESS=1` the sections are
//! rewritten.
//!
//! Every step of every scenario is rendered, also where the file does not say what must come out:
//! rendering must not fail, and must give the same text for the same state each time.

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::{Arguments, Trial};
use proxy_agent::{backend::ebpf, cluster::manifests::load_once};
use proxy_model::compute;
use proxy_tests::scenario::{self, Scenario, Step};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let scenarios = match Scenario::all() {
        Ok(scenarios) => scenarios,
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::FAILURE;
        }
    };
    let trials = scenarios.into_iter().map(|scenario| {
        Trial::test(scenario.name.clone(), move || {
            Ok(run(&scenario).map_err(|error| format!("{error:#}"))?)
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn run(scenario: &Scenario) -> Result<()> {
    let mut rendered = Vec::new();
    for (index, step) in scenario.steps.iter().enumerate() {
        let text = render(scenario, step)?;
        ensure!(
            text == render(scenario, step)?,
            "step {}: the same state was rendered differently",
            index + 1
        );
        rendered.push(text);
    }
    if scenario::is_blessing() {
        return scenario.bless("ebpf", &rendered);
    }
    for (index, text) in rendered.iter().enumerate() {
        if scenario.steps[index].ebpf.is_some() {
            scenario.compare(index, "ebpf", text)?;
        }
    }
    Ok(())
}

/// Reads the files anew, in a directory of their own, so that nothing of an earlier step helps.
fn render(scenario: &Scenario, step: &Step) -> Result<String> {
    let dir = tempfile::tempdir().context("cannot make a directory for manifests")?;
    step.write(dir.path())?;
    let events = load_once(vec![dir.path().to_owned()])?;
    let events = std::iter::once(scenario.settings.host_addresses()).chain(events);
    let state = compute(scenario.settings.model.clone(), events);
    Ok(ebpf::render(&state))
}
