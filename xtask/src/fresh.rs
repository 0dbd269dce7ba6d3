//! `cargo xtask fresh`: the README's commands as somebody types them on a bare machine.
//!
//! A bare Debian in a directory, with git and a C compiler and nothing else ([`base`]), what this
//! machine says about reaching packages ([`machine`]), and a clone of the last commit. The
//! commands are taken from the README ([`readme`]), and run in it, set-up included, with the
//! kernel and the network of this machine ([`enter`]). What a developer's machine happens to have
//! is not there.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use xtask::paths;

use crate::progress::{self, seconds};
use crate::setup::{self, Needs, apt};
use crate::stop::StopSignals;

mod base;
mod cgroup;
mod enter;
mod machine;
mod readme;
mod root;

use cgroup::Cgroup;
use machine::Machine;
use root::Root;

/// What this command needs.
pub(crate) const NEEDS: Needs = Needs::FRESH;

/// Options of `fresh`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run this instead of the README's commands; may be given more than once
    #[arg(long, value_name = "COMMAND")]
    command: Vec<String>,
    /// Keep the bare root, and print where it is
    #[arg(long)]
    keep: bool,
    /// Use a root that was kept, as it was left, instead of a new one
    #[arg(long, value_name = "DIR")]
    again: Option<PathBuf>,
}

/// What became of a command.
struct Outcome {
    command: String,
    code: i32,
    took: Duration,
    left: Vec<String>,
}

impl Outcome {
    fn passed(&self) -> bool {
        self.code == 0 && self.left.is_empty()
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let commands = if args.command.is_empty() {
        readme::commands()?
    } else {
        args.command.clone()
    };
    ensure!(
        apt::is_root(),
        "making a bare root takes mounts and namespaces: run it as root"
    );
    setup::ensure(NEEDS)?;
    let machine = Machine::look()?;
    // Held back from here on, so that a signal leaves neither a root nor a cgroup behind.
    let stop = StopSignals::block()?;
    let root = match &args.again {
        Some(dir) => Root::again(dir)?,
        None => make(&machine, args.keep)?,
    };
    let cgroup = Cgroup::new()?;
    let mut outcomes = Vec::new();
    for command in commands {
        eprintln!("\n==> {command}");
        let started = Instant::now();
        let ended = enter::run(&root, &machine, &cgroup, &command, &stop)?;
        let outcome = Outcome {
            command,
            code: ended.code,
            took: started.elapsed(),
            left: ended.left,
        };
        eprintln!("==> {}", told(&outcome));
        outcomes.push(outcome);
    }
    eprintln!("\nin a bare root:");
    for outcome in &outcomes {
        eprintln!("  {}", told(outcome));
    }
    root.close()?;
    Ok(if outcomes.iter().all(Outcome::passed) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A new root with a clone of the last commit.
fn make(machine: &Machine, keep: bool) -> Result<Root> {
    warn_of_changes()?;
    let place = paths::cache_dir()?.join("fresh");
    root::sweep(&place);
    let base = base::ready(&place, machine)?;
    let started = Instant::now();
    let root = Root::new(&place, &base, keep)?;
    machine.hand_over(root.path())?;
    root.clone_checkout()?;
    eprintln!(
        "the bare root is {} (made in {})",
        root.path().display(),
        seconds(started.elapsed())
    );
    Ok(root)
}

/// What is not committed is not in the clone.
fn warn_of_changes() -> Result<()> {
    let mut git = Command::new("git");
    git.args(["status", "--porcelain"])
        .current_dir(paths::workspace_root());
    let line = progress::shell_line(&git);
    let output = git
        .output()
        .with_context(|| format!("starting `{line}` to see what is not committed"))?;
    let count = output.stdout.split(|byte| *byte == b'\n').count() - 1;
    if count > 0 {
        eprintln!(
            "warning: {count} of the files here differ from the last commit, which is what will be run"
        );
    }
    Ok(())
}

fn told(outcome: &Outcome) -> String {
    let Outcome {
        command,
        code,
        took,
        left,
    } = outcome;
    let verdict = match code {
        0 => "passed".to_owned(),
        code => format!("FAILED with exit code {code}"),
    };
    let behind = match &left[..] {
        [] => "nothing".to_owned(),
        some => some.join(", "),
    };
    format!(
        "{command}: {verdict} in {}; left behind: {behind}",
        seconds(*took)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_leaves_is_told_and_fails_the_run() {
        let mut outcome = Outcome {
            command: "cargo xtask demo".to_owned(),
            code: 0,
            took: Duration::from_secs(75),
            left: Vec::new(),
        };
        assert_eq!(
            told(&outcome),
            "cargo xtask demo: passed in 75 s; left behind: nothing"
        );
        assert!(outcome.passed());
        outcome.left = vec!["/tmp/a".to_owned(), "process (b)".to_owned()];
        assert!(!outcome.passed());
        assert!(told(&outcome).ends_with("left behind: /tmp/a, process (b)"));
        outcome.code = 3;
        assert!(told(&outcome).contains("FAILED with exit code 3"));
    }
}
