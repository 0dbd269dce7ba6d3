//! Scenarios against the renderers of the backends: what they would program must be what the file
//! says, where it says so. Needs no privileges. With `CULVERT_BLESS=1` the sections are rewritten.
//!
//! Every step of every scenario is rendered, also where the file does not say what must come out:
//! rendering must not fail, and must give the same text for the same state each time.

use std::sync::Arc;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use proxy_backend_ebpf as ebpf;
use proxy_backend_nftables as nftables;
use proxy_model::NodeState;
use proxy_tests::scenario::{self, Scenario};

use crate::trials;

/// Name of the section, and who renders it.
type Renderer = (&'static str, fn(&NodeState) -> String);

const RENDERERS: [Renderer; 2] = [
    ("ebpf", ebpf::render),
    ("nftables", |state| {
        nftables::render(state, 1 << nftables::MASQUERADE_BIT)
    }),
];

pub fn trials(scenarios: &[Arc<Scenario>]) -> Vec<Trial> {
    let play = |scenario: &Scenario, states: &[NodeState], (): &()| {
        // Read anew, so that nothing of what was computed before helps.
        check(scenario, states, &trials::states(scenario)?)
    };
    trials::of_scenarios("scenarios_render::", scenarios, &(), play)
}

fn check(scenario: &Scenario, states: &[NodeState], anew: &[NodeState]) -> Result<()> {
    let mut seen = Vec::new();
    for (backend, render) in RENDERERS {
        let rendered: Vec<String> = states.iter().map(render).collect();
        for (index, (text, again)) in rendered.iter().zip(anew.iter().map(render)).enumerate() {
            ensure!(
                *text == again,
                "step {}: {backend} renders the same state differently",
                index + 1
            );
        }
        seen.push((backend, rendered));
    }
    if scenario::is_blessing() {
        return scenario.bless(&seen);
    }
    for (backend, rendered) in seen {
        for (index, text) in rendered.iter().enumerate() {
            if scenario.steps[index].texts.contains_key(backend) {
                scenario.compare(index, backend, text)?;
            }
        }
    }
    Ok(())
}
