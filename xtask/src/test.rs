//! `cargo xtask test`: the quick tests, all tests, or the kernel-dependent ones on other kernels.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::beside::{BESIDE_COMPILERS, BESIDE_OTHERS};
use crate::cargo::{self, Object, cargo};
use crate::choice::Choice;
use crate::emulated::{self, Wanted};
use crate::image;
use crate::progress::seconds;
use crate::setup::{self, Needs, apt, needs};
use crate::suites;
use crate::tally::Tally;
use crate::test_programs::{
    AGENT_ENV, IMAGES_ENV, OF_IMAGES, build_agent, ensure_any, program, tests_of,
};
use crate::vm::{self, kernels};

/// Makes suites rewrite their expectations in place of comparing with them.
pub(crate) const BLESS_ENV: &str = "CULVERT_BLESS";

/// Names the backend that the suite `conformance` runs.
const BACKEND_ENV: &str = "CULVERT_BACKEND";

/// How many random states that suite goes through.
const RANDOM_ENV: &str = "CULVERT_RANDOM";

/// The number of the first walk through them.
const SEED_ENV: &str = "CULVERT_SEED";

/// Options of `test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only what needs no root and no BPF; under a minute once compiled
    #[arg(long, conflicts_with = "kernel")]
    quick: bool,
    /// Run the kernel-dependent suites on this kernel in a virtual machine: 5.10, 6.1 or 6.12
    #[arg(long, value_name = "VERSION")]
    kernel: Vec<kernels::Line>,
    /// With --kernel: every suite and scenario, also where that kernel can make no difference
    #[arg(long, requires = "kernel")]
    full: bool,
    /// Rewrite the expectations of scenario files and reference pages
    #[arg(long, conflicts_with = "kernel")]
    bless: bool,
    /// With the suite `conformance`: what to test, the backend `ebpf` or `nftables` alone, `layers`
    /// (the agent with --tc=off), `devices` (with programs on devices, as by default), `devices-alone`
    /// (these without a packet backend), or the command
    /// line of another backend behind the node API, in which {target} and {cgroup} stand for the
    /// brain's address and the cgroup of the node's processes; without it, all that are the agent's own
    #[arg(long, value_name = "BACKEND", conflicts_with = "kernel")]
    backend: Option<String>,
    /// With the suite `conformance`: how many random states to go through
    #[arg(long, value_name = "N", conflicts_with = "kernel")]
    random: Option<usize>,
    /// With the suite `conformance`: the number of the first random walk; each is ten states, and the
    /// next one has the next number
    #[arg(long, value_name = "S", conflicts_with = "kernel")]
    seed: Option<u64>,
    /// Packages or suites to run, all if none is named
    #[arg(value_name = "SUITE")]
    suites: Vec<String>,
    /// Arguments for the test programs
    #[arg(last = true)]
    rest: Vec<String>,
}

impl Args {
    /// What says which tests the suites have.
    fn environment(&self) -> Vec<(&'static str, String)> {
        let all = [
            (BACKEND_ENV, self.backend.clone()),
            (RANDOM_ENV, self.random.map(|number| number.to_string())),
            (SEED_ENV, self.seed.map(|number| number.to_string())),
        ];
        let given = all.into_iter();
        given
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// What this command needs.
    pub(crate) fn needs(&self) -> Needs {
        if self.quick {
            return Needs::NONE;
        }
        let guests = !self.kernel.is_empty();
        let own = match &self.suites[..] {
            // What is meant without a name is, on another kernel, what depends on one.
            [] if guests => Needs::SUITES,
            [] => Needs::HOST,
            suites => suites.iter().fold(Needs::TOOLCHAIN, |all, suite| {
                all.and(needs::of_suite(suite))
            }),
        };
        own.and_if(guests, Needs::GUESTS)
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut tally = Tally::default();
    let started = Instant::now();
    let passed = if args.kernel.is_empty() {
        on_this_kernel(args, &mut tally)?
    } else {
        setup::ensure(args.needs())?;
        let wanted = Wanted {
            suites: &args.suites,
            arguments: &args.rest,
            full: args.full,
            cpus: vm::CPUS,
        };
        on_kernels(&args.kernel, &wanted, &mut tally)?
    };
    println!("finished in {}", seconds(started.elapsed()));
    println!("{tally}");
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn on_this_kernel(args: &Args, tally: &mut Tally) -> Result<bool> {
    let packages = suites::packages()?;
    let selection = suites::selection(&packages, &args.suites)?;
    let object = if args.quick {
        Object::Skipped
    } else {
        Object::Embedded
    };
    let agent = if args.quick {
        None
    } else {
        Some(prepare_full_run(args.needs())?)
    };
    let mut environment = args.environment();
    let wants_images =
        |part: &suites::Part<'_>| OF_IMAGES.iter().any(|suite| part.suites.contains(suite));
    if !args.quick && (args.suites.is_empty() || selection.parts.iter().any(wants_images)) {
        let images = image::for_suites()?;
        environment.push((IMAGES_ENV, images.display().to_string()));
    }
    let command = || {
        let mut command = cargo("test", object);
        command.arg("--no-fail-fast");
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        if let Some(agent) = &agent {
            command.env(AGENT_ENV, agent);
        }
        if args.bless {
            command.env(BLESS_ENV, "1");
        }
        command
    };
    let mut passed = true;
    let mut run = |selected: &[&str], tests: &[String]| -> Result<()> {
        let mut command = command();
        command.args(selected).arg("--").args(tests);
        passed &= cargo::test(&mut command, tally)?;
        Ok(())
    };
    if args.suites.is_empty() {
        let mut selected = Vec::new();
        if args.quick {
            selected.extend(["--lib", "--bins"]);
            for program in suites::quick(&packages) {
                selected.extend(["--test", program]);
            }
        }
        run(&selected, &args.rest)?;
        return Ok(passed);
    }
    for package in selection.packages {
        run(&["--package", package], &args.rest)?;
    }
    let choice = Choice::of(&args.rest)?;
    let mut chose_any = selection.parts.is_empty();
    for part in &selection.parts {
        let selected = ["--test", &part.program.name];
        if part.program.is_suite() {
            chose_any = true;
            run(&selected, &args.rest)?;
        } else if let Some(tests) = tests_of(part, &program(part, object)?, &choice, &environment)?
        {
            chose_any = true;
            run(&selected, &tests)?;
        }
    }
    ensure_any(chose_any, &args.rest)?;
    Ok(passed)
}

/// All tests on this machine's kernel, for CI. Images have been made.
pub(crate) fn all(tally: &mut Tally) -> Result<bool> {
    let agent = prepare_full_run(Needs::HOST)?;
    cargo::test(
        cargo("test", Object::Embedded)
            .arg("--no-fail-fast")
            .env(AGENT_ENV, agent)
            .env(IMAGES_ENV, image::dir()),
        tally,
    )
}

/// The tests on the kernels that CI does not test beside others.
pub(crate) fn on_other_kernels(full: bool, tally: &mut Tally) -> Result<bool> {
    let wanted = Wanted {
        suites: &[],
        arguments: &[],
        full,
        cpus: vm::CPUS,
    };
    let lines = kernels::Line::ALL.into_iter();
    let others: Vec<_> = lines
        .filter(|line| ![BESIDE_COMPILERS, BESIDE_OTHERS].contains(line))
        .collect();
    on_kernels(&others, &wanted, tally)
}

fn on_kernels(lines: &[kernels::Line], wanted: &Wanted<'_>, tally: &mut Tally) -> Result<bool> {
    let prepared = lines
        .iter()
        .map(|line| emulated::prepare(*line, wanted))
        .collect::<Result<Vec<_>>>()?;
    let mut passed = true;
    for one in prepared {
        passed &= one.run(tally)?;
    }
    Ok(passed)
}

/// Sees to what privileged suites need, and builds the agent they run.
fn prepare_full_run(needs: Needs) -> Result<PathBuf> {
    ensure!(
        apt::is_root(),
        "the full tests make network namespaces and load BPF programs, which takes root: run them \
         as root, or `cargo xtask test --quick` for those that need nothing"
    );
    setup::ensure(needs)?;
    build_agent(Object::Embedded)
}
