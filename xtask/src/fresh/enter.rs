//! Runs a command inside of a bare root: in namespaces of its own, with the kernel and the network
//! of this machine.
//!
//! Mounts, processes and the cgroup end with the command, and with this process, `kill -9`
//! included.

use std::fs;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use super::cgroup::Cgroup;
use super::machine::Machine;
use super::root::{CHECKOUT, Root};
use crate::stop::{StopSignals, Stopped};

const OUTSIDE: &str = include_str!("../../fresh/outside.sh");
const INSIDE: &str = include_str!("../../fresh/inside.sh");

/// Where the script inside notes what is left, seen from there.
const LEFT: &str = "/var/tmp/left-behind";

/// How often the command is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How long a command that got Ctrl-C, as all of the terminal did, has to take down what it made.
const TIDYING: Duration = Duration::from_secs(30);

/// How a command ended.
pub(super) struct Ended {
    /// Its exit code.
    pub(super) code: i32,
    /// What it left behind.
    pub(super) left: Vec<String>,
}

/// Runs it, with the terminal of this process.
pub(super) fn run(
    root: &Root,
    machine: &Machine,
    command: &str,
    stop: &StopSignals,
) -> Result<Ended> {
    let cgroup = Cgroup::new()?;
    let left = root.path().join(LEFT.trim_start_matches('/'));
    match fs::remove_file(&left) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("removing {}", left.display()));
        }
        _ => {}
    }
    let mut enter = Command::new("setpriv");
    enter
        .args(["--pdeathsig", "KILL", "--", "sh", "-c", OUTSIDE, "sh"])
        .arg(cgroup.path())
        .arg(INSIDE)
        .arg(root.path())
        .args([machine.rustup(), machine.proxies()])
        .args([CHECKOUT, command, LEFT])
        .env_clear()
        .envs(machine.environment());
    let mut child = Running(
        enter
            .spawn()
            .context("starting a shell in the bare root (`setpriv`, `unshare` of util-linux)")?,
    );
    let code = child.wait(stop)?;
    let left = fs::read_to_string(&left).with_context(|| {
        format!(
            "the bare root {} could not be entered (exit code {code}): the first process inside \
             wrote nothing; what stopped it is above",
            root.path().display()
        )
    })?;
    Ok(Ended {
        code,
        left: left.lines().map(str::to_owned).collect(),
    })
}

/// All that runs inside, killed with this value.
struct Running(Child);

impl Running {
    fn wait(&mut self, stop: &StopSignals) -> Result<i32> {
        let mut asked: Option<(Signal, Instant)> = None;
        loop {
            let ended = self.0.try_wait().context("waiting for the bare root")?;
            asked = match asked {
                None => stop.pending()?.map(|signal| (signal, Instant::now())),
                some => some,
            };
            match (ended, asked) {
                (Some(_), Some((signal, _))) => return Err(Stopped(signal).into()),
                (Some(status), None) => return Ok(status.code().unwrap_or(-1)),
                (None, Some((signal, since)))
                    if signal != Signal::SIGINT || since.elapsed() > TIDYING =>
                {
                    return Err(Stopped(signal).into());
                }
                (None, _) => thread::sleep(LOOK),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The first process inside dies with its parent, and takes all others along.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
