//! Scenarios as real traffic: the probes of every file, between real sockets, by the real agent.
//! What happens must be what the file says, and what the oracle allows. Needs root and BPF.

#[path = "traffic/trials.rs"]
mod trials;

use std::process::ExitCode;

use proxy_tests::{
    requires::PRIVILEGED,
    scenario::{subject::Under, traffic},
};

fn main() -> ExitCode {
    trials::run("traffic", PRIVILEGED, |scenarios| {
        trials::of_scenarios("", &scenarios, &Under::Agent, traffic::run)
    })
}
