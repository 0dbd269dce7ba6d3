//! `cargo xtask ci`: everything that has to hold before a change lands.
//!
//! Steps run to the end even if one fails, so that one run tells all; a table closes the run.

use std::cell::RefCell;
use std::env;
use std::process::{Command, ExitCode, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use xtask::ebpf;
use xtask::paths;
use xtask::toolchain::BpfToolchain;

use crate::beside::{BESIDE_COMPILERS, BESIDE_OTHERS, Beside};
use crate::cargo::{Object, cargo};
use crate::progress::{self, seconds};
use crate::setup::{self, Needs};
use crate::stop::Stopped;
use crate::tally::Tally;
use crate::test_programs::SMALLEST;
use crate::vm::kernels::Line;
use crate::{fuzz, image, test, tidy, windows};

/// How long each fuzz target runs, in seconds.
const FUZZING: u32 = 20;

/// What this command needs.
pub(crate) const NEEDS: Needs = Needs::ALL;

/// A named part of the run. The action says whether it passed, and counts tests.
type Step = (String, Box<dyn FnOnce(&mut Tally) -> Result<bool>>);

/// What became of a step.
struct Outcome {
    name: String,
    passed: bool,
    took: Duration,
}

/// Options of `ci`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Every suite on every kernel, also where that can make no difference, and fuzzing
    #[arg(long)]
    full: bool,
    /// Only the steps whose names contain this, without set-up: `--only clippy`
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
}

/// Runs everything.
pub(crate) fn run(args: &Args) -> ExitCode {
    let full = args.full;
    let mut tally = Tally::default();
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut steps = steps(full);
    if let Some(word) = &args.only {
        steps.retain(|(name, _)| name.contains(word.as_str()));
        if steps.is_empty() {
            eprintln!(
                "error: no step has {word:?} in its name; `cargo xtask ci` names them as it goes"
            );
            return ExitCode::FAILURE;
        }
    }
    let count = steps.len();
    for (number, (name, action)) in (1..).zip(steps) {
        println!("\n==> [{number}/{count}] {name}");
        let started = Instant::now();
        let mut stopped = false;
        let passed = action(&mut tally).unwrap_or_else(|error| {
            println!("error: {error:#}");
            stopped = error.is::<Stopped>();
            false
        });
        let took = started.elapsed();
        println!("==> {name}: {} in {}", verdict(passed), seconds(took));
        let first = outcomes.is_empty();
        outcomes.push(Outcome { name, passed, took });
        if stopped || first && !passed && args.only.is_none() {
            // Without what set-up installs, all that follows would fail for the same reason.
            break;
        }
    }
    println!("\n{}", table(&outcomes));
    // Of a long output the end is what is kept and read.
    for line in &tally.said {
        println!("{line}");
    }
    for name in &tally.names {
        println!("FAILED: {name}");
    }
    println!("{tally}");
    let passed = outcomes.len() == count && outcomes.iter().all(|outcome| outcome.passed);
    if passed && (tally.passed > 0 || args.only.is_some()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn steps(full: bool) -> Vec<Step> {
    let step = |name: &str, action: fn(&mut Tally) -> Result<bool>| -> Step {
        (name.to_owned(), Box::new(action))
    };
    let mut steps = vec![
        step("set-up", |_| setup::ensure(NEEDS).map(|()| true)),
        step("house rules", |_| tidy::check()),
        step("formatting", |_| done(&mut formatting())),
        step("container image", |_| image::for_suites().map(|_| true)),
        step("tests", test::all),
    ];
    // Not beside the tests, which mind the time.
    let [begin, end] = beside(BESIDE_COMPILERS, full);
    steps.push(begin);
    steps.extend([
        // First, because it has a directory of its own: whoever tests on other kernels asks cargo
        // for their programs meanwhile.
        step("Windows", windows::check),
        step("clippy, host", |_| done(&mut clippy_host())),
        step("clippy, no backend", |_| {
            done(&mut clippy_without_backends())
        }),
        step("clippy, BPF target", |_| done(&mut clippy_bpf()?)),
        step("documentation builds", |_| done(&mut documentation())),
    ]);
    // No compiler is at work any more.
    let [begin_other, end_other] = beside(BESIDE_OTHERS, full);
    let action = move |tally: &mut Tally| test::on_other_kernels(full, tally);
    let others: Step = ("tests on other kernels".to_owned(), Box::new(action));
    steps.extend([begin_other, others, end_other, end]);
    if full {
        steps.push(step("fuzz targets", |_| fuzz::build().map(|_| true)));
        steps.push(step("fuzzing", |_| fuzz::all(FUZZING)));
    }
    steps.push(step("nothing generated is stale", |_| unchanged()));
    steps
}

/// The tests on a kernel, beside the steps between these two.
fn beside(kernel: Line, full: bool) -> [Step; 2] {
    let running = Rc::new(RefCell::new(None));
    let started = Rc::clone(&running);
    let begin = move |_: &mut Tally| {
        *started.borrow_mut() = Some(Beside::start(kernel, full)?);
        Ok(true)
    };
    let end = move |tally: &mut Tally| {
        let running = running.take().context("they did not begin")?;
        running.finish(tally)
    };
    [
        (format!("Linux {kernel} begins"), Box::new(begin)),
        (format!("tests on Linux {kernel}"), Box::new(end)),
    ]
}

fn done(command: &mut Command) -> Result<bool> {
    progress::run(command).map(|()| true)
}

fn formatting() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["fmt", "--all", "--check"])
        .current_dir(paths::workspace_root());
    command
}

fn clippy_host() -> Command {
    let mut command = cargo("clippy", Object::Embedded);
    // With the fuzz targets: without `--full` nothing else compiles them.
    command
        .args(["--all-targets", "--features", "proxy-fuzz/fuzzer"])
        .args(["--", "-D", "warnings"]);
    command
}

/// An agent without a backend has everything that one without some has to do without.
fn clippy_without_backends() -> Command {
    let mut command = cargo("clippy", Object::Embedded);
    // With the smallest test, so that what it stands on is checked as for all packages.
    command
        .args(["--package", "proxy-agent", "--package", "proxy-api"])
        .args(["--no-default-features", "--bin", "proxy-agent"])
        .args(["--test", SMALLEST, "--", "-D", "warnings"]);
    command
}

/// The linter of the compiler that makes the kernel object, called directly: `cargo clippy` would
/// look for it in cargo's own directory first, and find that of another toolchain.
fn clippy_bpf() -> Result<Command> {
    let toolchain = BpfToolchain::discover()?;
    let clippy = toolchain.compiler.bin.join("cargo-clippy");
    if !paths::is_executable(&clippy) {
        bail!("there is no {}: run `cargo xtask setup`", clippy.display());
    }
    let root = paths::workspace_root();
    let configured = toolchain.cargo(root);
    let mut command = Command::new(clippy);
    command.current_dir(root);
    for (name, value) in configured.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .args([
            "clippy",
            "--locked",
            "--release",
            "--package",
            ebpf::PACKAGE,
        ])
        .args(toolchain.target_args())
        .arg("--target-dir")
        .arg(paths::bpf_target_dir(root))
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            ebpf::rustflags(&toolchain, root, env::consts::ARCH),
        )
        .args(["--", "-D", "warnings"]);
    Ok(command)
}

fn documentation() -> Command {
    let mut command = cargo("doc", Object::Embedded);
    // With the examples cargo takes the features that tests need, as for the linter, so that it
    // does not check every dependency once more.
    command
        .args(["--no-deps", "--lib", "--examples"])
        .env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// Whether the run left every tracked file as it was: a test that rewrites what it should compare
/// with, or a lock file that had to be brought up to date, shows here.
fn unchanged() -> Result<bool> {
    if env::var("CI").is_ok_and(|ci| ci == "true") {
        let mut git = Command::new("git");
        git.args(["diff", "--stat", "--exit-code"])
            .current_dir(paths::workspace_root());
        let status = git.stdin(Stdio::null()).status().context("starting git")?;
        return Ok(status.success());
    }
    println!("(compared in CI only: here, work in progress is expected)");
    Ok(true)
}

fn verdict(passed: bool) -> &'static str {
    if passed { "passed" } else { "FAILED" }
}

fn table(outcomes: &[Outcome]) -> String {
    let width = outcomes
        .iter()
        .map(|outcome| outcome.name.len())
        .max()
        .unwrap_or(0);
    let line = |outcome: &Outcome| {
        let Outcome { name, passed, took } = outcome;
        format!(
            "  {name:width$}  {}  {:>12}",
            verdict(*passed),
            seconds(*took)
        )
    };
    let total: Duration = outcomes.iter().map(|outcome| outcome.took).sum();
    let mut lines: Vec<_> = outcomes.iter().map(line).collect();
    lines.push(format!(
        "  {:width$}          {:>12}",
        "in all",
        seconds(total)
    ));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lines_up() {
        let outcome = |name: &str, passed, took| Outcome {
            name: name.to_owned(),
            passed,
            took: Duration::from_secs(took),
        };
        let shown = table(&[outcome("tests", true, 187), outcome("formatting", false, 3)]);
        let words: Vec<_> = shown.split_whitespace().collect();
        let expected = "tests passed 3 min 07 s formatting FAILED 3.0 s in all 3 min 10 s";
        assert_eq!(words.join(" "), expected);
        let widths: Vec<_> = shown.lines().map(str::len).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{shown}");
    }

    #[test]
    fn set_up_comes_first_and_kernels_are_waited_for() {
        let names = |full| steps(full).into_iter().map(|(name, _)| name);
        let order = [
            "set-up",
            "container image",
            "tests",
            "Linux 5.10 begins",
            "Windows",
            "clippy, host",
            "Linux 6.1 begins",
            "tests on other kernels",
            "tests on Linux 6.1",
            "tests on Linux 5.10",
        ];
        for full in [false, true] {
            let names: Vec<_> = names(full).collect();
            let at = |name: &str| names.iter().position(|step| step == name).unwrap();
            assert!(order.map(at).is_sorted(), "{names:?}");
        }
        // They take as long as all of clippy, and find something after hours, not seconds.
        assert!(names(true).any(|name| name == "fuzzing"));
        assert!(!names(false).any(|name| name == "fuzzing"));
    }
}
