//! `cargo xtask vm`: runs any command on another kernel, for looking around.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::setup::{self, Needs};
use crate::vm::{self, kernels};

/// What this command needs.
pub(crate) const NEEDS: Needs = Needs::GUESTS;

/// Options of `vm`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The kernel: 5.10, 6.1 or 6.12
    #[arg(long, default_value = "6.1")]
    kernel: kernels::Line,
    /// Give up after this many seconds
    #[arg(long, default_value_t = 600)]
    timeout: u64,
    /// A bash command; it sees this machine's files, and changes none of them
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<String>,
}

/// Runs the command and ends with its exit code.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    setup::ensure(NEEDS)?;
    let job = vm::Job {
        line: args.kernel,
        script: &args.command.join(" "),
        cpus: vm::CPUS,
        time_limit: Duration::from_secs(args.timeout),
    };
    let code = vm::run(&job, |line| println!("{line}"))?;
    Ok(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from))
}
