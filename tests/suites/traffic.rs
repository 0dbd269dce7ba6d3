//! Scenarios as real traffic: the probes of every file, between real sockets, by the real agent.
//! What happens must be what the file says, and what the oracle allows. Needs root and BPF.

use std::sync::Arc;

use libtest_mimic::Trial;
use proxy_tests::{
    requires::{Need, PRIVILEGED},
    scenario::{Scenario, subject::Under, traffic},
};

use crate::trials;

pub const NEEDS: &[&[Need]] = &[PRIVILEGED];

pub fn trials(scenarios: &[Arc<Scenario>]) -> Vec<Trial> {
    trials::of_scenarios("traffic::", scenarios, &Under::Agent, traffic::run)
}
