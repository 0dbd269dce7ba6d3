//! Suites in which each scenario is a test, between real sockets or as packets through a kernel: as
//! root. The name of a suite begins those of its tests.

mod conformance;
mod traffic;
#[path = "traffic/trials.rs"]
mod trials;

use std::process::ExitCode;

use trials::Suite;

fn main() -> ExitCode {
    trials::main(&[
        Suite {
            name: "traffic",
            needs: traffic::NEEDS,
            trials: traffic::trials,
        },
        Suite {
            name: "conformance",
            needs: conformance::NEEDS,
            trials: conformance::trials,
        },
    ])
}
