//! `cargo xtask test`: the quick tests, all tests, or the kernel-dependent ones on other kernels.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use xtask::paths;

use crate::cargo::{self, Object, cargo};
use crate::progress::{quoted, seconds};
use crate::setup::{self, Needs, apt};
use crate::suites;
use crate::tally::Tally;
use crate::vm::{self, kernels};

/// Makes suites rewrite their expectations in place of comparing with them.
pub(crate) const BLESS_ENV: &str = "CULVERT_BLESS";

/// Names the agent that suites run.
pub(crate) const AGENT_ENV: &str = "CULVERT_AGENT";

/// Names the backend that the suite `conformance` runs.
const BACKEND_ENV: &str = "CULVERT_BACKEND";

/// How many random states that suite goes through.
const RANDOM_ENV: &str = "CULVERT_RANDOM";

/// The number of the first walk through them.
const SEED_ENV: &str = "CULVERT_SEED";

/// How long all suites may take on one other kernel, in software emulation.
const GUEST_LIMIT: Duration = Duration::from_mins(20);

/// Options of `test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only what needs no root and no BPF; under a minute once compiled
    #[arg(long, conflicts_with = "kernel")]
    quick: bool,
    /// Run the kernel-dependent suites on this kernel in a virtual machine: 5.10, 6.1 or 6.12
    #[arg(long, value_name = "VERSION")]
    kernel: Vec<kernels::Line>,
    /// Rewrite the expectations of scenario files and reference pages
    #[arg(long, conflicts_with = "kernel")]
    bless: bool,
    /// With the suite `conformance`: which backend to test, `ebpf`, `nftables`, or the command line of
    /// another one behind the node API, in which {target} and {cgroup} stand for the brain's address
    /// and the cgroup of the node's processes; without it, all of the agent's own
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

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut tally = Tally::default();
    let started = Instant::now();
    let passed = if args.kernel.is_empty() {
        on_this_kernel(args, &mut tally)?
    } else {
        let mut all = true;
        for line in &args.kernel {
            all &= on_kernel(*line, &args.suites, &args.rest, &mut tally)?;
        }
        all
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
    let mut command = cargo("test", object);
    command.arg("--no-fail-fast").args(&selection);
    if let Some(backend) = &args.backend {
        command.env(BACKEND_ENV, backend);
    }
    if let Some(random) = args.random {
        command.env(RANDOM_ENV, random.to_string());
    }
    if let Some(seed) = args.seed {
        command.env(SEED_ENV, seed.to_string());
    }
    if args.quick && selection.is_empty() {
        command.args(["--lib", "--bins"]);
        for suite in suites::quick(&packages) {
            command.args(["--test", suite]);
        }
    }
    if !args.quick {
        command.env(AGENT_ENV, prepare_full_run()?);
    }
    if args.bless {
        command.env(BLESS_ENV, "1");
    }
    cargo::test(command.arg("--").args(&args.rest), tally)
}

/// All tests on this machine's kernel, for CI.
pub(crate) fn all(tally: &mut Tally) -> Result<bool> {
    let agent = prepare_full_run()?;
    cargo::test(
        cargo("test", Object::Embedded)
            .arg("--no-fail-fast")
            .env(AGENT_ENV, agent),
        tally,
    )
}

/// Sees to what privileged suites need, and builds the agent they run.
fn prepare_full_run() -> Result<PathBuf> {
    ensure!(
        apt::is_root(),
        "the full tests make network namespaces and load BPF programs, which takes root: run them \
         as root, or `cargo xtask test --quick` for those that need nothing"
    );
    setup::ensure(Needs::HOST)?;
    build_agent(Object::Embedded)
}

/// Builds the agent with the features that the tests' own build gives it, so that cargo compiles
/// its dependencies once.
pub(crate) fn build_agent(object: Object) -> Result<PathBuf> {
    let built = cargo::build(cargo("build", object).args(["--bin", "proxy-agent"]))?;
    Ok(cargo::the("proxy-agent", &built)?.path.clone())
}

/// The kernel-dependent suites on one other kernel.
pub(crate) fn on_kernel(
    line: kernels::Line,
    filters: &[String],
    arguments: &[String],
    tally: &mut Tally,
) -> Result<bool> {
    setup::ensure(Needs::VM)?;
    let packages = suites::packages()?;
    let names = suites::for_other_kernels(&packages, filters)?;
    let agent = build_agent(Object::Embedded)?;
    let mut command = cargo("test", Object::Embedded);
    command.arg("--no-run");
    for name in &names {
        command.args(["--test", name]);
    }
    let built = cargo::build(&mut command)?;
    let programs: Vec<&Path> = names
        .iter()
        .map(|name| Ok(cargo::the(name, &built)?.path.as_path()))
        .collect::<Result<_>>()?;
    eprintln!(
        "kernel {line}: booting a virtual machine for {}",
        names.join(", ")
    );
    let started = Instant::now();
    let job = vm::Job {
        line,
        script: &guest_script(&programs, &agent, arguments)?,
        cpus: vm::CPUS,
        time_limit: GUEST_LIMIT,
    };
    let mut here = Tally::default();
    let code = vm::run(&job, |text| {
        println!("{text}");
        here.read(text);
    })?;
    eprintln!("kernel {line}: {here} in {}", seconds(started.elapsed()));
    *tally += here;
    if code == 0 && here.passed == 0 {
        bail!("kernel {line}: the suites {} ran no test", names.join(", "));
    }
    Ok(code == 0)
}

/// What the guest does: each program, in the directory cargo would run it in.
fn guest_script(programs: &[&Path], agent: &Path, arguments: &[String]) -> Result<String> {
    let root = paths::workspace_root();
    let shell = |path: &Path| quoted(&path.to_string_lossy());
    let mut arguments: Vec<_> = arguments.iter().map(|argument| quoted(argument)).collect();
    arguments.insert(0, String::new());
    let arguments = arguments.join(" ");
    let mut lines = vec!["failed=0".to_owned()];
    let mut dirs = vec![root];
    for path in programs.iter().chain([&agent]) {
        dirs.push(path.parent().context("a program lies in no directory")?);
    }
    // A checkout below /tmp or /run is hidden by the guest's own file systems there.
    for dir in dirs.into_iter().map(shell) {
        let mount = format!("mkdir -p {dir} && mount --bind /run/host{dir} {dir}");
        lines.push(format!("[ -e {dir} ] || {{ {mount}; }}"));
    }
    lines.push(format!("cd {}/tests || exit 1", shell(root)));
    lines.push(format!("export {AGENT_ENV}={}", shell(agent)));
    for program in programs {
        let program = shell(program);
        lines.push(format!("echo \"     Running {program} on $(uname -r)\""));
        lines.push(format!("{program}{arguments} || failed=1"));
    }
    lines.push("exit $failed\n".to_owned());
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_runs_every_program_and_reports_any_failure() {
        let programs = [
            Path::new("/t/debug/deps/traffic-1"),
            Path::new("/t/debug/deps/restart-2"),
        ];
        let arguments = ["--exact".to_owned(), "a b".to_owned()];
        let script =
            guest_script(&programs, Path::new("/t/debug/proxy-agent"), &arguments).unwrap();
        for program in programs {
            let line = format!("{} --exact 'a b' || failed=1\n", program.display());
            assert!(script.contains(&line), "{script}");
        }
        assert!(
            script.contains("export CULVERT_AGENT=/t/debug/proxy-agent\n"),
            "{script}"
        );
        assert!(script.ends_with("exit $failed\n"), "{script}");
    }
}
