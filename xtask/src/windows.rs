//! `cargo xtask windows`: builds the model and the agent for Windows, and compares what the
//! program prints under wine with what the one for this machine prints.
//!
//! Shows that they compile and compute the same, not how Windows behaves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result};
use xtask::paths;

use self::toolchain::{LINKER, TARGET, WindowsToolchain};
use self::wine::Wine;
use crate::cargo::{self, Object};
use crate::progress::{self, seconds};
use crate::setup::{self, Needs};
use crate::skips;
use crate::tally::Tally;
use crate::test_programs;

mod compare;
mod inputs;
pub(crate) mod toolchain;
pub(crate) mod wine;

/// What stands for the part of Windows that wine lacks.
const STAND_IN: &str = "xtask/windows/bcryptprimitives.c";

/// What this command needs.
pub(crate) const NEEDS: Needs = Needs::WINDOWS;

/// Runs the command.
pub(crate) fn run() -> Result<ExitCode> {
    setup::ensure(NEEDS)?;
    let mut tally = Tally::default();
    let passed = check(&mut tally)?;
    println!("{tally}");
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Builds, runs and compares. `Ok(false)` if something differs; each comparison counts as a test.
pub(crate) fn check(tally: &mut Tally) -> Result<bool> {
    let toolchain = WindowsToolchain::discover()?;
    println!("{toolchain}");
    let started = Instant::now();
    let program = build(&toolchain)?;
    println!(
        "{} built in {}",
        program.display(),
        seconds(started.elapsed())
    );
    let Some(wine) = Wine::find(&target_dir().join("wine")) else {
        skips::told("windows", "wine64", "there is no wine64 on the PATH")?;
        return Ok(true);
    };
    build_stand_in(&program)?;
    let native = test_programs::build_agent(Object::at_hand())?;
    let started = Instant::now();
    let _server = wine.start()?;
    println!("wine is ready after {}", seconds(started.elapsed()));
    let inputs = tempfile::tempdir().context("making a directory for manifests")?;
    let cases = inputs::cases(paths::workspace_root(), inputs.path())?;
    compare::all(
        &cases,
        &native,
        &|arguments| wine.command(&program, arguments),
        tally,
    )
}

/// Apart from everything else that is built: other flags, and another compiler perhaps.
fn target_dir() -> PathBuf {
    paths::workspace_root().join("target/windows")
}

/// Builds both packages; a warning is an error. Returns the agent.
fn build(toolchain: &WindowsToolchain) -> Result<PathBuf> {
    let mut command = toolchain.cargo();
    command
        .args(["build", "--locked"])
        .args(["--package", "proxy-model", "--package", "proxy-agent"])
        .args(toolchain.target_args())
        .arg("--target-dir")
        .arg(target_dir())
        .args(["--config", "profile.dev.debug=0"])
        .env("CARGO_ENCODED_RUSTFLAGS", "-Dwarnings");
    let built = cargo::build(&mut command)
        .with_context(|| format!("compiling for {TARGET} ({toolchain})"))?;
    Ok(cargo::the("proxy-agent", &built)?.path.clone())
}

/// Compiles [`STAND_IN`] beside the program, where wine looks first.
fn build_stand_in(program: &Path) -> Result<()> {
    let source = paths::workspace_root().join(STAND_IN);
    let library = program.with_file_name("bcryptprimitives.dll");
    let time = |file: &Path| fs::metadata(file).and_then(|meta| meta.modified());
    if let (Ok(made), Ok(written)) = (time(&library), time(&source))
        && made >= written
    {
        return Ok(());
    }
    let mut compile = Command::new(LINKER);
    compile.args(["-O2", "-Wall", "-Werror", "-shared", "-s", "-o"]);
    progress::run(compile.arg(&library).arg(&source).arg("-ladvapi32"))
}
