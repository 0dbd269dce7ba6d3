//! Building bpf-linker for a given LLVM, into the cache.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use xtask::toolchain::BPF_LINKER_VERSION;
use xtask::{environment, paths};

use super::apt;
use crate::progress;

/// The command that builds it; it takes about a minute.
///
/// The final place appears only when cargo has finished, so an interrupted build is no obstacle
/// to the next one.
pub(super) fn install(cache: &Path, llvm_major: u32) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    environment::forget_outer_cargo(&mut command, paths::workspace_root());
    // Outside the workspace, whose configuration must not count; with its host toolchain, which
    // may be the only one that rustup has.
    command.current_dir("/");
    if let Some(toolchain) = env::var_os("RUSTUP_TOOLCHAIN") {
        command.env("RUSTUP_TOOLCHAIN", toolchain);
    }
    let root = paths::bpf_linker_root(cache, BPF_LINKER_VERSION, llvm_major);
    let prefix = apt::llvm_prefix(llvm_major);
    let llvm_tools = Path::new(&prefix).join("bin");
    // Its place is on PATH so that cargo does not advise to put it there: we find it anyway.
    command.env(
        "PATH",
        environment::path_with(&[&llvm_tools, &root.join("bin")]),
    );
    if llvm_tools.is_dir() {
        command.env("LLVM_PREFIX", &prefix);
    }
    command
        .args([
            "install",
            "bpf-linker",
            "--locked",
            "--version",
            BPF_LINKER_VERSION,
        ])
        .args(["--no-default-features", "--features"])
        .arg(format!("llvm-{llvm_major}"))
        .arg("--root")
        .arg(root);
    command
}

/// The same as a person would type it.
pub(super) fn shell_line(cache: &Path, llvm_major: u32) -> String {
    let root = paths::bpf_linker_root(cache, BPF_LINKER_VERSION, llvm_major);
    let prefix = apt::llvm_prefix(llvm_major);
    format!(
        "LLVM_PREFIX={prefix} PATH={prefix}/bin:$PATH cargo install bpf-linker --locked --version \
         {BPF_LINKER_VERSION} --no-default-features --features llvm-{llvm_major} --root {}",
        root.display()
    )
}

/// Builds it, with the development files of its LLVM installed first if need be.
pub(super) fn install_now(cache: &Path, llvm_major: u32) -> Result<()> {
    if !apt::has_llvm(llvm_major) && apt::is_debian() && apt::is_root() {
        apt::install_now(&apt::llvm_packages(llvm_major))?;
    }
    std::fs::create_dir_all(cache)
        .with_context(|| format!("making the cache directory {}", cache.display()))?;
    progress::run(&mut install(cache, llvm_major)).with_context(|| {
        format!("building bpf-linker {BPF_LINKER_VERSION} against LLVM {llvm_major}")
    })
}
