//! Suites in which each scenario is a test, and that need no root. The name of a suite begins those
//! of its tests.

mod scenarios_model;
mod scenarios_render;
mod scenarios_traced;
#[path = "traffic/trials.rs"]
mod trials;

use std::process::ExitCode;

use trials::Suite;

fn main() -> ExitCode {
    trials::main(&[
        Suite {
            name: "scenarios_model",
            needs: &[],
            trials: scenarios_model::trials,
        },
        Suite {
            name: "scenarios_render",
            needs: &[],
            trials: scenarios_render::trials,
        },
        Suite {
            name: "scenarios_traced",
            needs: &[],
            trials: scenarios_traced::trials,
        },
    ])
}
