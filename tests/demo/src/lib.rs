//! `cargo xtask demo`: Culvert at work on a throw-away node, with real traffic.
//!
//! ```text
//! phases ──> stage (world, pods, agent) + traffic ──> screen
//! ```
//! What it says happened was measured; the first claim that does not hold ends it with an
//! error. It uses the test harness and the agent's command line, like any test.

mod cluster;
mod leftovers;
mod look_around;
mod phases;
mod screen;
mod stage;
mod traffic;

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use clap::Parser;
use nix::sys::signal::Signal;
use thiserror::Error;

use cluster::ALL;
use proxy_harness::{
    World,
    interrupt::Interrupts,
    requires::{self, Need, PRIVILEGED},
};
use screen::{Screen, Tone, number};
use stage::Stage;

/// Between two drawings of the live table.
const FRAME: Duration = Duration::from_millis(200);

/// Culvert at work on a throw-away node.
///
/// Makes a node and pods out of network namespaces and a cgroup, runs the real agent on objects
/// of a real cluster, sends real traffic to Services, and proves what it shows. Leaves nothing
/// behind.
#[derive(Debug, Parser)]
#[command(name = "demo", bin_name = "cargo xtask demo", after_help = EXIT_CODES)]
pub struct Options {
    /// After the last phase, go on until Ctrl-C and show commands to look around with
    #[arg(long)]
    pub keep: bool,

    /// How long the phases may take together; more time shows more traffic
    #[arg(long, value_name = "N", default_value_t = 15,
          value_parser = clap::value_parser!(u32).range(4..=3600))]
    pub seconds: u32,
}

const EXIT_CODES: &str = "\
Exit codes:
  0    everything shown did happen, and nothing is left behind
  1    something did not: the last lines say what
  2    bad usage
  3    this host or this user cannot: no root, no BPF, no cgroup v2, no ip command
  130  stopped by Ctrl-C or SIGTERM; nothing is left behind";

/// The demo ended early, by request.
#[derive(Debug, Error)]
#[error("stopped by {0}")]
struct Asked(Signal);

/// Runs the demo.
pub fn main(options: &Options) -> ExitCode {
    if let Some((need, reason)) = requires::unmet(PRIVILEGED) {
        eprintln!(
            "error: the demo cannot run here: {reason}\n{}",
            advice(need)
        );
        return ExitCode::from(3);
    }
    let interrupts = match Interrupts::hold_back() {
        Ok(interrupts) => interrupts,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let mut show = Show {
        screen: Screen::new(),
        interrupts,
        manifests: None,
    };
    let outcome = show.run(options);
    show.conclude(outcome)
}

fn advice(need: Need) -> &'static str {
    match need {
        Need::Root => {
            "Making network namespaces, cgroups and BPF programs takes root: run it with sudo, or \
             in a virtual machine."
        }
        Need::Bpf => {
            "It takes Linux 5.10 or later with BPF, and a mounted cgroup v2 hierarchy; containers \
             usually have neither: run it on the host, or in a virtual machine."
        }
        _ => "`cargo xtask setup` installs what is missing, unless it belongs to the kernel.",
    }
}

/// The demo as the user sees it.
struct Show {
    screen: Screen,
    interrupts: Interrupts,
    /// The agent's manifest directory, to see afterwards that it is gone.
    manifests: Option<PathBuf>,
}

impl Show {
    /// Everything from the first namespace to the last; it is all taken down on return.
    fn run(&mut self, options: &Options) -> Result<()> {
        let began = Instant::now();
        self.screen.say(
            Tone::Heading,
            "Culvert, a Kubernetes Service proxy, on a throw-away node",
        )?;
        self.screen.gap()?;
        let world = World::new().context("cannot make the node")?;
        let mut stage = Stage::set(&world)?;
        self.manifests = Some(stage.agent.manifest(""));
        for line in stage.describe()? {
            self.screen.say(Tone::Plain, &line)?;
        }
        let length = Duration::from_secs(options.seconds.into());
        phases::all(self, &mut stage, length)?;
        let requests = number(stage.traffic.answered());
        self.screen.gap()?;
        self.screen.say(
            Tone::Good,
            &format!(
                "✓ {requests} requests answered, none failed, in {:.0} s",
                began.elapsed().as_secs_f64()
            ),
        )?;
        if options.keep {
            self.keep(&world, &stage)?;
        }
        Ok(())
    }

    /// Leaves everything running until the user has seen enough.
    fn keep(&mut self, world: &World, stage: &Stage<'_>) -> Result<()> {
        self.screen.gap()?;
        self.screen.say(
            Tone::Heading,
            "Still running, with traffic. Look around as root, from another terminal:",
        )?;
        let pid = stage.traffic.pid();
        for hint in look_around::hints(world, &stage.agent, &stage.client, pid) {
            self.screen.say(
                Tone::Plain,
                &format!("\n  # {}\n  {}", hint.shows, hint.command),
            )?;
        }
        self.screen.gap()?;
        self.screen
            .say(Tone::Plain, "Ctrl-C takes everything down.")?;
        // An hour at a time, because a poll has a longest timeout.
        while self.interrupts.wait(Duration::from_hours(1)).is_none() {}
        Ok(())
    }

    /// Lets the traffic flow and shows it; ends early at the first failed request or signal.
    fn watch(&mut self, stage: &mut Stage<'_>, status: &str, length: Duration) -> Result<()> {
        let end = Instant::now() + length;
        loop {
            stage.traffic.poll()?;
            self.screen
                .draw(&screen::table(&stage.traffic, &ALL), status)?;
            stage.no_failures()?;
            let left = end.saturating_duration_since(Instant::now());
            if let Some(signal) = self.interrupts.wait(left.min(FRAME)) {
                return Err(Asked(signal).into());
            }
            if left.is_zero() {
                return Ok(());
            }
        }
    }

    /// A claim that has been found true.
    fn proven(&mut self, claim: &str) -> Result<()> {
        Ok(self.screen.say(Tone::Good, &format!("  ✓ {claim}"))?)
    }

    /// An error if the user has asked to stop.
    fn still_wanted(&self) -> Result<()> {
        self.interrupts
            .arrived()
            .map_or(Ok(()), |signal| Err(Asked(signal).into()))
    }

    /// Says how it ended, after a look at what is left.
    fn conclude(mut self, outcome: Result<()>) -> ExitCode {
        let left = leftovers::find(&self.manifests.take().unwrap_or_default());
        let (code, tone, text) = match outcome {
            Ok(()) => (ExitCode::SUCCESS, Tone::Good, String::new()),
            // Whatever failed after a signal may have failed because of it.
            Err(error) => match self.interrupts.arrived() {
                Some(signal) => (ExitCode::from(130), Tone::Plain, Asked(signal).to_string()),
                None => (ExitCode::FAILURE, Tone::Bad, format!("✗ {error:#}")),
            },
        };
        let (code, tone, ending) = if left.is_empty() {
            (code, tone, "✓ left behind: nothing".to_owned())
        } else {
            let ending = format!("✗ left behind: {}", left.join(", "));
            (ExitCode::FAILURE, Tone::Bad, ending)
        };
        // With nobody to tell, the exit code has to do.
        if !text.is_empty() {
            self.screen.say(tone, &text).ok();
        }
        let tone = if left.is_empty() { Tone::Good } else { tone };
        self.screen.say(tone, &ending).ok();
        code
    }
}
