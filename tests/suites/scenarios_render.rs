//! Scenarios against the renderers of the backends: what they would program must be what the file
//! says, where it says so. Needs no privileges. With `CULVERT_BLESS=1` the sections are rewritten.
//!
//! Every step of every scenario is rendered, also where the file does not say what must come out:
//! rendering must not fail, and must give the same text for the same state each time.

use std::sync::Arc;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use proxy_agent::backends;
use proxy_backend::{BackendKind, Settings};
use proxy_model::NodeState;
use proxy_tests::scenario::{self, Scenario};

use crate::trials;

pub fn trials(scenarios: &[Arc<Scenario>]) -> Vec<Trial> {
    let play = |scenario: &Scenario, states: &[NodeState], (): &()| {
        // Read anew, so that nothing of what was computed before helps.
        check(scenario, states, &trials::states(scenario)?)
    };
    trials::of_scenarios("scenarios_render::", scenarios, &(), play)
}

fn check(scenario: &Scenario, states: &[NodeState], anew: &[NodeState]) -> Result<()> {
    let mut seen = Vec::new();
    // As kube-proxy has it, unless told otherwise.
    let settings = Settings {
        masquerade_mark: 1 << 14,
        ..Settings::default()
    };
    for step in &scenario.steps {
        let names = step.texts.keys().filter(|name| *name != "state");
        for name in names {
            let known = BackendKind::named(name, backends::ALL).is_some();
            ensure!(known, "no backend and no other section is called {name}");
        }
    }
    for kind in backends::ALL {
        let backend = kind.name();
        let render = |state: &NodeState| kind.render(state, &settings, false);
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
