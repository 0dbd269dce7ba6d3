//! Scenarios as real traffic: the probes of every file, between real sockets, by the real agent.
//! Needs root and BPF.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use proxy_tests::{
    requires::{self, PRIVILEGED},
    scenario::{Scenario, traffic},
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
            Ok(traffic::run(&scenario).map_err(|error| format!("{error:#}"))?)
        })
        .with_ignored_flag(skipped)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
