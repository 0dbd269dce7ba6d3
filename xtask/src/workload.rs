//! `cargo xtask demo` and `cargo xtask bench`: build, then become the program.
//!
//! The demo is what somebody sees first, and is compiled as tests are: in a fraction of the time, and
//! what it leaves in the target directory is of use to the next command. Its claims are about what
//! happens, not how fast. The bench measures, and so measures a release.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Error, Result};

use crate::cargo::{self, Object, cargo};
use crate::setup::{self, Needs};
use crate::test_programs::{AGENT_ENV, POD};

/// Options of `demo` and `bench`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Arguments for the program; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

/// A program that shows or measures Culvert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// It proves what it shows.
    Demo,
    /// It measures.
    Bench,
}

/// Has the demo hand out commands to look around with.
const KEEP: &str = "--keep";

impl Workload {
    /// The command that builds it, and the agent and the pods that it runs.
    fn build(self) -> Command {
        let mut command = cargo("build", Object::Embedded);
        command.args(["--bin", "proxy-agent", "--bin", POD, "--bin", self.name()]);
        if self == Self::Bench {
            command.arg("--release");
        }
        command
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Demo => "demo",
            Self::Bench => "bench",
        }
    }

    /// What this needs, with these arguments.
    pub(crate) fn needs(self, args: &Args) -> Needs {
        let keeps = args.rest.iter().any(|argument| argument == KEEP);
        match self {
            Self::Demo => Needs::DEMO.and_if(keeps, Needs::LOOKING),
            Self::Bench => Needs::BENCH,
        }
    }
}

/// Builds the agent and the program, and replaces this process with it, so that
/// Ctrl-C and the exit code are the program's own. Returns only on failure.
pub(crate) fn run<T>(workload: Workload, args: &Args) -> Result<T> {
    setup::ensure(workload.needs(args))?;
    let name = workload.name();
    let built = cargo::build(&mut workload.build())?;
    let agent = &cargo::the("proxy-agent", &built)?.path;
    let program = &cargo::the(name, &built)?.path;
    let error = Command::new(program)
        .args(&args.rest)
        .env(AGENT_ENV, agent)
        .exec();
    Err(Error::new(error).context(format!("starting {}", program.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::shell_line;

    #[test]
    fn only_what_measures_is_optimised() {
        let demo = shell_line(&Workload::Demo.build());
        assert!(demo.ends_with("--bin culvert-pod --bin demo"), "{demo}");
        assert!(shell_line(&Workload::Bench.build()).contains("--bin bench --release"));
    }
}
