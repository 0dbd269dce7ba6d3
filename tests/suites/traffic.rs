//! Scenarios as real traffic: the probes of every file, between real sockets, by the real agent.
//! What happens must be what the file says, and what the oracle allows. Needs root and BPF.
//!
//! In emulation, scenarios share agents instead of each having one of its own.

use std::sync::Arc;

use libtest_mimic::Trial;
use proxy_tests::{
    emulated::is_emulated,
    requires::{Need, PRIVILEGED},
    scenario::{
        Scenario,
        batch::{self, Batch},
        subject::Under,
        traffic,
    },
};

use crate::trials;

pub const NEEDS: &[&[Need]] = &[PRIVILEGED];

pub fn trials(scenarios: &[Arc<Scenario>]) -> Vec<Trial> {
    let prefix = "traffic::";
    if is_emulated() {
        let batch = Arc::new(Batch::default());
        return trials::of_scenarios(prefix, scenarios, &batch, |scenario, states, batch| {
            batch::run(scenario, states, batch)
        });
    }
    trials::of_scenarios(prefix, scenarios, &Under::Agent, traffic::run)
}
