//! Building bpf-linker into the cache, for a compiler.
//!
//! It is linked with the very library that the compiler has its LLVM in: nothing of LLVM need be
//! installed for it, and the two never differ in what they read and write.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Error, Result};
use xtask::toolchain::{BPF_LINKER_VERSION, Compiler};
use xtask::{environment, paths};

use crate::progress;

/// The name that a linker is told, `-lLLVM`, stands for.
const LIBRARY: &str = "libLLVM.so";

/// Builds it; takes half a minute.
pub(super) fn install_now(cache: &Path, compiler: &Compiler) -> Result<()> {
    let what = || {
        format!(
            "building bpf-linker {BPF_LINKER_VERSION} for rustc {} in {}",
            compiler.release,
            compiler.bin.display()
        )
    };
    let library = compiler.llvm_library().map_err(Error::msg);
    let library = library.with_context(what)?;
    let root = paths::bpf_linker_root(cache, BPF_LINKER_VERSION, compiler.llvm_major);
    let prefix = prefix_with(&root, &library)?;
    progress::run(&mut command(&root, &prefix, compiler.llvm_major)).with_context(what)
}

/// A directory as LLVM's own installation would be, with its library and nothing else. It stays:
/// the linker looks there for the library when it runs.
fn prefix_with(root: &Path, library: &Path) -> Result<PathBuf> {
    let prefix = root.join("llvm");
    let dir = prefix.join("lib");
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let own_name = library.file_name().unwrap_or(LIBRARY.as_ref());
    for name in [LIBRARY.as_ref(), own_name] {
        let link = dir.join(name);
        match fs::remove_file(&link) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("replacing {}", link.display()));
            }
            _ => {}
        }
        symlink(library, &link)
            .with_context(|| format!("linking {} to {}", link.display(), library.display()))?;
    }
    Ok(prefix)
}

/// The command that builds it.
///
/// The final place appears only when cargo has finished, so an interrupted build is no obstacle
/// to the next one; neither is one that is there, and of no use.
fn command(root: &Path, prefix: &Path, llvm_major: u32) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    environment::forget_outer_cargo(&mut command, paths::workspace_root());
    // Outside the workspace, whose configuration must not count; with its host toolchain, which
    // may be the only one that rustup has.
    command.current_dir("/");
    if let Some(toolchain) = env::var_os("RUSTUP_TOOLCHAIN") {
        command.env("RUSTUP_TOOLCHAIN", toolchain);
    }
    command
        // Its place is on PATH so that cargo does not advise to put it there: we find it anyway.
        .env("PATH", environment::path_with(&[&root.join("bin")]))
        .env("LLVM_PREFIX", prefix)
        .args(["install", "bpf-linker", "--locked", "--force"])
        .args(["--version", BPF_LINKER_VERSION])
        .args(["--no-default-features", "--features"])
        .arg(format!("llvm-{llvm_major}"))
        // What takes time in it is LLVM, which is optimised as it comes.
        .args(["--profile", "dev", "--config", "profile.dev.debug=0"])
        .arg("--root")
        .arg(root);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_holds_the_compiler_s_library_under_both_names() {
        let dir = tempfile::tempdir().unwrap();
        let old = dir.path().join("libLLVM.so.22.0");
        let library = dir.path().join("libLLVM.so.22.1");
        prefix_with(&dir.path().join("root"), &old).unwrap();
        let prefix = prefix_with(&dir.path().join("root"), &library).unwrap();
        for name in ["libLLVM.so", "libLLVM.so.22.1"] {
            let link = prefix.join("lib").join(name);
            assert_eq!(fs::read_link(link).unwrap(), library);
        }
    }

    #[test]
    fn the_build_is_locked_of_one_release_and_replaces_what_is_there() {
        let line = progress::shell_line(&command(Path::new("/c"), Path::new("/c/llvm"), 22));
        for part in [
            "LLVM_PREFIX=/c/llvm",
            "install bpf-linker --locked --force --version 0.13.0",
            "--features llvm-22",
            "--root /c",
        ] {
            assert!(line.contains(part), "{line}");
        }
    }
}
