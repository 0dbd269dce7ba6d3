//! `cargo xtask fuzz`: lets a fuzzer invent input for everything that reads objects, and packets for
//! what handles them.
//!
//! The targets are in `tests/fuzz`. Our own packages are instrumented as `cargo fuzz` does it,
//! without its sanitizers: those need a nightly compiler, and what they find is left to Miri and to the few
//! lines of `unsafe` themselves. So the stable compiler is enough, with one for C++.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result};
use xtask::paths;

use crate::cargo::{self, Executable, Object, cargo};
use crate::progress;
use crate::setup::{self, Needs};
use crate::test_programs::SMALLEST;

/// Has rustc instrument the packages of this workspace.
const INSTRUMENTED: &str = "tests/fuzz/instrumented.sh";

/// Longer inputs are slower and say nothing new.
const LONGEST_INPUT: &str = "-max_len=8192";

/// An input that takes longer is a finding, in seconds: the slowest seed takes a hundredth.
const SLOW: &str = "-timeout=10";

/// What this command needs.
pub(crate) const NEEDS: Needs = Needs::FUZZER;

/// A fuzz target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Target {
    /// Manifests: reading, converting, the model, explanations
    Objects,
    /// Events: the model and the oracle
    Model,
    /// Operations of a brain, as bytes: decoding, the replica, explanations
    Wire,
    /// Configuration files: reading, and conversion between versions
    Configuration,
    /// Packets: what the programs on devices make of them
    Packets,
}

impl Target {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [
        Self::Objects,
        Self::Model,
        Self::Wire,
        Self::Configuration,
        Self::Packets,
    ];

    /// Its name on the command line, which is that of its program.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Objects => "objects",
            Self::Model => "model",
            Self::Wire => "wire",
            Self::Configuration => "configuration",
            Self::Packets => "packets",
        }
    }

    /// Words that mean something to it.
    const fn dictionary(self) -> Option<&'static str> {
        match self {
            Self::Objects => Some("tests/fuzz/objects.dict"),
            Self::Packets => Some("tests/fuzz/packets.dict"),
            Self::Configuration => Some("tests/fuzz/configuration.dict"),
            Self::Model | Self::Wire => None,
        }
    }

    /// Where its first inputs come from.
    fn seeds(self) -> &'static [&'static str] {
        match self {
            // A scenario file is an input as it is, and so is a manifest.
            Self::Objects => &["tests/scenarios", "tests/data"],
            // Bytes that nobody can write: the fuzzer finds its own within seconds.
            Self::Model | Self::Wire => &[],
            // Files of a few lines, which the words of the dictionary make longer.
            Self::Configuration => &["tests/data", "docs/reference"],
            // One of each kind, which `tests/fuzz/src/packets/seeds.rs` makes.
            Self::Packets => &["tests/fuzz/corpus/packets"],
        }
    }
}

/// Options of `fuzz`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Target to run; all, one after the other, if none is named
    target: Option<Target>,
    /// How long each target runs
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u32,
    /// Run only this input, such as one that a crash left
    #[arg(long, value_name = "FILE", requires = "target")]
    input: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let built = build()?;
    if let (Some(target), Some(input)) = (args.target, &args.input) {
        let program = &cargo::the(target.name(), &built)?.path;
        progress::run(Command::new(program).arg(SLOW).arg(input))?;
        return Ok(ExitCode::SUCCESS);
    }
    let targets = args.target.map_or(Target::ALL.to_vec(), |one| vec![one]);
    let mut passed = true;
    for target in targets {
        passed &= fuzz(target, &built, args.seconds)?;
    }
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Every target for so many seconds, for CI.
pub(crate) fn all(seconds: u32) -> Result<bool> {
    let built = build()?;
    let mut passed = true;
    for target in Target::ALL {
        passed &= fuzz(target, &built, seconds)?;
    }
    Ok(passed)
}

/// Builds the targets, upon what the tests stand on: another profile, platform or choice of features
/// would have cargo compile all of that once more. Hence also the smallest of the tests.
pub(crate) fn build() -> Result<Vec<Executable>> {
    setup::ensure(NEEDS)?;
    let mut command = cargo("build", Object::at_hand());
    for target in Target::ALL {
        command.args(["--bin", target.name()]);
    }
    command
        .args(["--test", SMALLEST, "--features", "proxy-fuzz/fuzzer"])
        .env(
            "RUSTC_WORKSPACE_WRAPPER",
            paths::workspace_root().join(INSTRUMENTED),
        );
    cargo::build(&mut command)
}

/// Lets the fuzzer work on one target. `Ok(false)` if it found something.
fn fuzz(target: Target, built: &[Executable], seconds: u32) -> Result<bool> {
    let name = target.name();
    let program = &cargo::the(name, built)?.path;
    let root = paths::workspace_root();
    // What it learnt stays for the next run.
    let learnt = root.join("target/fuzz").join(name).join("corpus");
    let findings = root.join("target/fuzz").join(name).join("findings");
    for dir in [&learnt, &findings] {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    }
    println!("fuzzing {name} for {seconds} s");
    let mut command = invocation(target, program, &learnt, &findings, seconds);
    let line = progress::shell_line(&command);
    let log = root.join("target/fuzz").join(name).join("log");
    let file = File::create(&log).with_context(|| format!("making {}", log.display()))?;
    let status = command
        .current_dir(root)
        .stdin(Stdio::null())
        .stderr(file)
        .status()
        .with_context(|| format!("starting `{line}`"))?;
    let said = fs::read(&log).with_context(|| format!("reading {}", log.display()))?;
    let said = String::from_utf8_lossy(&said);
    if status.success() {
        println!("{name}: {} inputs, and nothing found", tried(&said));
    } else {
        println!(
            "{}\nerror: {name}: {status}: the input is in {}; look at it with\n    \
             cargo xtask fuzz {name} --input FILE\nand make a scenario or a unit test of it",
            last_lines(&said, 60),
            findings.display()
        );
    }
    Ok(status.success())
}

/// How many inputs the fuzzer says that it tried.
fn tried(log: &str) -> &str {
    let mut lines = log.lines();
    let count = lines.find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    count.map_or("no", str::trim)
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

fn invocation(
    target: Target,
    program: &Path,
    learnt: &Path,
    findings: &Path,
    seconds: u32,
) -> Command {
    let mut command = Command::new(program);
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", findings.display()))
        .args([LONGEST_INPUT, SLOW, "-print_final_stats=1", "-verbosity=0"]);
    let dictionary = target.dictionary();
    command.args(dictionary.map(|file| format!("-dict={file}")));
    command.arg(learnt).args(target.seeds());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_says_how_many_inputs_were_tried() {
        let log = "Done\nstat::number_of_executed_units: 670981\nstat::peak_rss_mb: 42\n";
        assert_eq!((tried(log), tried("")), ("670981", "no"));
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a\n", 2), "a");
    }

    #[test]
    fn seeds_and_words_are_there() {
        let root = paths::workspace_root();
        for target in Target::ALL {
            for seeds in target.seeds() {
                assert!(root.join(seeds).is_dir(), "{seeds}");
            }
            let (learnt, findings) = (Path::new("/l"), Path::new("/f"));
            let command = invocation(target, Path::new("/p"), learnt, findings, 7);
            let line = progress::shell_line(&command);
            assert!(
                line.contains("-max_total_time=7 -artifact_prefix=/f/"),
                "{line}"
            );
            if let Some((_, rest)) = line.split_once("-dict=") {
                let dictionary = rest.split(' ').next().unwrap();
                assert!(root.join(dictionary).is_file(), "{dictionary}");
            }
        }
    }
}
