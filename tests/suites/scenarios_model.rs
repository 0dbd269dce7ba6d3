//! Scenarios against the model: after each step the state table must be the one in the file, and
//! what the file expects of probes, of packets, and of probes where there are layers, must be what
//! the oracle says, and what `explain` answers. Needs no privileges.
//! With `CULVERT_BLESS=1` the tables are rewritten, expectations of traffic never.
//!
//! Each scenario is also told to the model step by step, the way a running agent is, and the
//! result must equal computing it at once.

#[path = "scenarios_model/explained.rs"]
mod explained;

use std::{fs, path::Path, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use proxy_agent::{
    cluster::manifests::{ManifestSource, load_once},
    report,
};
use proxy_model::{Change, Model, compute};
use proxy_tests::scenario::{
    self, Scenario,
    judge::{Judge, packet},
    layered,
    sources::Sources,
};

use crate::trials;

pub fn trials(scenarios: &[Arc<Scenario>]) -> Vec<Trial> {
    let trial = |scenario: &Arc<Scenario>| {
        let scenario = Arc::clone(scenario);
        let name = format!("scenarios_model::{}", scenario.name);
        trials::of(name, move || run(&scenario))
    };
    scenarios.iter().map(trial).collect()
}

fn run(scenario: &Scenario) -> Result<()> {
    let dir = tempfile::tempdir().context("cannot make a directory for manifests")?;
    let paths = vec![dir.path().to_owned()];
    let mut source = ManifestSource::new(paths.clone());
    let settings = &scenario.settings;
    let mut model = Model::new(settings.model.clone());
    model.apply(settings.host_addresses());
    let sources = Sources::of(scenario)?;
    let mut tables = Vec::new();
    let mut judge = Judge::default();
    for (index, step) in scenario.steps.iter().enumerate() {
        let number = index + 1;
        for change in &step.changes {
            perform(change, dir.path())?;
        }
        let events = load_once(paths.clone())?;
        let events = std::iter::once(settings.host_addresses()).chain(events);
        let at_once = compute(settings.model.clone(), events);

        let before = model.state().services.clone();
        let poll = source.poll();
        ensure!(
            poll.rejected.is_empty(),
            "step {number}: {:?}",
            poll.rejected
        );
        for event in poll.events {
            model.apply(event);
        }
        let changes = model.update();
        ensure!(
            *model.state() == at_once,
            "step {number}: step by step gives\n{}but at once gives\n{}",
            report::to_text(model.state()),
            report::to_text(&at_once)
        );
        let mut followed = before;
        for change in changes.changes {
            match change {
                Change::Upsert { key, state } => drop(followed.insert(key, state)),
                Change::Delete { key } => drop(followed.remove(&key)),
            }
        }
        ensure!(
            followed == at_once.services,
            "step {number}: the changes do not lead from the state before to the state after"
        );
        for probe in &step.probes {
            judge
                .expectation(&at_once, probe)
                .and_then(|()| explained::probe(&model, probe))
                .with_context(|| format!("step {number}"))?;
        }
        for line in &step.packets {
            packet(&at_once, line)
                .and_then(|()| explained::packet(&model, line))
                .with_context(|| format!("step {number}"))?;
        }
        for line in &step.layered {
            let packet = sources.packet(&line.probe)?;
            layered::expectation(&at_once, line, &packet)
                .and_then(|()| explained::layered(&model, line, &packet))
                .with_context(|| format!("step {number}"))?;
        }
        tables.push(report::to_text(&at_once));
    }
    if scenario::is_blessing() {
        return scenario.bless(&[("state", tables)]);
    }
    for (index, table) in tables.iter().enumerate() {
        scenario.compare(index, "state", table)?;
    }
    Ok(())
}

fn perform(change: &scenario::Change, dir: &Path) -> Result<()> {
    match change {
        scenario::Change::Apply { file, content } => fs::write(dir.join(file), content),
        scenario::Change::Delete { file } => fs::remove_file(dir.join(file)),
    }
    .with_context(|| format!("cannot perform {change:?}"))
}
