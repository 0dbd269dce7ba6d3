//! The program of an image: built for its target, and parted from its debug information.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use xtask::paths;

use super::layout::digest;
use super::toolchain::ImageToolchain;
use crate::cargo;
use crate::progress;

/// The package of the program, and its name.
pub(crate) const PACKAGE: &str = "proxy-agent";

/// The profile that it is built with.
const PROFILE: &str = "image";

/// A program and what is kept of its symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// What goes into the image.
    pub(crate) stripped: PathBuf,
    /// What turns the addresses of a crash into lines.
    pub(crate) debug: PathBuf,
}

/// Builds it below `dir`, which holds nothing but what is made for images.
pub(crate) fn build(toolchain: &ImageToolchain, dir: &Path) -> Result<Program> {
    let root = paths::workspace_root();
    let native = dir.join("native");
    let mut command = toolchain.cargo(root, &native)?;
    command
        .args(["rustc", "--locked", "--package", PACKAGE, "--bin", PACKAGE])
        .args(["--profile", PROFILE])
        // A panic of one part of the agent must not end the others: see `run/life.rs`.
        .args(toolchain.compiler.target_args("panic_unwind"))
        .arg("--target-dir")
        .arg(dir)
        // Cargo does not look into what flags name: so it links anew where that is another one.
        .args(cargo::TELLING)
        .args(["--", "--cfg"])
        .arg(format!("linked_with=\"{}\"", digest_of(&native)?));
    let built = cargo::build_told(&mut command)
        .with_context(|| format!("compiling the program of an image ({toolchain})"))?;
    part(toolchain, &cargo::the(PACKAGE, &built)?.path)
}

/// One digest for all files in a directory, which need not exist.
fn digest_of(dir: &Path) -> Result<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        all.extend(fs::read(&file).with_context(|| format!("reading {}", file.display()))?);
    }
    Ok(digest(&all))
}

/// Parts a program from its debug information. The names of functions stay, because a backtrace in
/// a log is of no use without them.
fn part(toolchain: &ImageToolchain, whole: &Path) -> Result<Program> {
    let objcopy = toolchain.binutil("objcopy")?;
    let parted = Program {
        stripped: whole.with_extension("stripped"),
        debug: whole.with_extension("debug"),
    };
    let newer = |file: &Path| {
        let time = |file: &Path| fs::metadata(file).and_then(|meta| meta.modified());
        matches!((time(file), time(whole)), (Ok(made), Ok(built)) if made >= built)
    };
    if newer(&parted.stripped) && newer(&parted.debug) {
        return Ok(parted);
    }
    let copy = |flags: &[&str], from: &Path, to: &Path| {
        progress::run(Command::new(&objcopy).args(flags).args([from, to]))
    };
    let keep_debug = ["--only-keep-debug", "--compress-debug-sections=zlib"];
    copy(&keep_debug, whole, &parted.debug)?;
    let link = format!("--add-gnu-debuglink={}", parted.debug.display());
    copy(&["--strip-debug", &link], whole, &parted.stripped)?;
    Ok(parted)
}
