//! Where compilers and linkers are looked for, and the looking.
//!
//! The places are values, so that a test can point them at directories of its own.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{BPF_LINKER_VERSION, BPF_TARGET, Compiler, Route, ask_version, output_of};
use crate::paths;

/// The directories a toolchain may be in.
#[derive(Clone, Debug)]
pub struct Places {
    /// rustup's home, which holds `toolchains/`.
    pub rustup_home: Option<PathBuf>,
    /// Where the distribution puts its compiler.
    pub distribution_bin: PathBuf,
    /// The per-user cache of tools.
    pub cache: Option<PathBuf>,
    /// A bpf-linker that the user installed.
    pub linker_on_path: Option<PathBuf>,
}

impl Places {
    /// The places of this machine.
    pub fn of_this_machine() -> Self {
        let home = env::var_os("HOME").map(PathBuf::from);
        let rustup_home = env::var_os("RUSTUP_HOME").filter(|value| !value.is_empty());
        Self {
            rustup_home: rustup_home
                .map(PathBuf::from)
                .or_else(|| home.as_ref().map(|home| home.join(".rustup"))),
            distribution_bin: PathBuf::from("/usr/bin"),
            cache: paths::cache_dir().ok(),
            linker_on_path: paths::find_on_path("bpf-linker"),
        }
    }

    /// The newest nightly of rustup that has `rust-src`, or what is missing.
    pub fn rustup_compiler(&self) -> Result<Compiler, String> {
        let nightlies = self.nightlies();
        if nightlies.is_empty() {
            return Err("no nightly toolchain".to_owned());
        }
        let with_source = nightlies.iter().find(|dir| {
            dir.join("lib/rustlib/src/rust/library/core/Cargo.toml")
                .is_file()
        });
        let Some(dir) = with_source else {
            return Err("the nightly toolchain lacks rust-src".to_owned());
        };
        let bin = dir.join("bin");
        let (release, llvm_major) = ask_version(&bin.join("rustc"))?;
        Ok(Compiler {
            route: Route::Rustup,
            bin,
            release,
            llvm_major,
        })
    }

    /// Directories of nightly toolchains: the plain `nightly` first, then dated ones, newest
    /// first.
    fn nightlies(&self) -> Vec<PathBuf> {
        let Some(home) = &self.rustup_home else {
            return Vec::new();
        };
        let Ok(entries) = fs::read_dir(home.join("toolchains")) else {
            return Vec::new();
        };
        let dated = |dir: &Path| {
            let name = dir.file_name().and_then(OsStr::to_str).unwrap_or_default();
            name.strip_prefix("nightly-")
                .is_some_and(|rest| rest.starts_with("20"))
        };
        let mut found: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|dir| {
                dir.file_name()
                    .and_then(OsStr::to_str)
                    .is_some_and(|n| n.starts_with("nightly"))
            })
            .collect();
        found.sort_by(|a, b| dated(a).cmp(&dated(b)).then_with(|| b.cmp(a)));
        found
    }

    /// The distribution's compiler, if `core` for the BPF target is installed beside it, or what
    /// is missing.
    pub fn distribution_compiler(&self) -> Result<Compiler, String> {
        let rustc = self.distribution_bin.join("rustc");
        for tool in [&rustc, &self.distribution_bin.join("cargo")] {
            if !paths::is_executable(tool) {
                return Err(format!("no {}", tool.display()));
            }
        }
        let mut ask = Command::new(&rustc);
        ask.args(["--print", "target-libdir", "--target", BPF_TARGET]);
        let libraries = PathBuf::from(output_of(&mut ask)?.trim());
        if !holds_core(&libraries) {
            return Err(format!("{} has no core for {BPF_TARGET}", rustc.display()));
        }
        let (release, llvm_major) = ask_version(&rustc)?;
        let bin = self.distribution_bin.clone();
        Ok(Compiler {
            route: Route::Distribution,
            bin,
            release,
            llvm_major,
        })
    }

    /// A bpf-linker for this compiler, or what is missing.
    ///
    /// The one that `setup` built is known to match. One that the user installed is taken on
    /// trust for the rustup route, which is how aya's users have it; the distribution's LLVM is
    /// ahead of or behind released linkers too often for that.
    pub fn linker_for(&self, compiler: &Compiler) -> Result<PathBuf, String> {
        let ours = self.cache.as_ref().map(|cache| {
            paths::bpf_linker_root(cache, BPF_LINKER_VERSION, compiler.llvm_major)
                .join("bin/bpf-linker")
        });
        if let Some(linker) = ours.filter(|linker| paths::is_executable(linker)) {
            return Ok(linker);
        }
        match (&self.linker_on_path, compiler.route) {
            (Some(linker), Route::Rustup) => Ok(linker.clone()),
            _ => Err(format!("no bpf-linker for LLVM {}", compiler.llvm_major)),
        }
    }
}

fn holds_core(libraries: &Path) -> bool {
    fs::read_dir(libraries).is_ok_and(|entries| {
        entries.flatten().any(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("libcore-") && name.ends_with(".rlib")
        })
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::BpfToolchain;
    use super::*;

    /// An executable that prints what a compiler would.
    fn program(file: &Path, says: &str) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("#!/bin/sh\n{says}\n")).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    const VERSION: &str = "echo 'release: 1.99.0'; echo 'LLVM version: 22.1.8'";

    fn nightly(home: &Path, name: &str, source: bool) {
        let dir = home.join("toolchains").join(name);
        program(&dir.join("bin/rustc"), VERSION);
        if source {
            let core = dir.join("lib/rustlib/src/rust/library/core");
            fs::create_dir_all(&core).unwrap();
            fs::write(core.join("Cargo.toml"), "").unwrap();
        }
    }

    fn distribution(bin: &Path, core: bool) {
        let libraries = bin.join("libraries");
        fs::create_dir_all(&libraries).unwrap();
        if core {
            fs::write(libraries.join("libcore-0.rlib"), "").unwrap();
        }
        let says = format!(
            "if [ \"$1\" = --print ]; then echo '{}'; else {VERSION}; fi",
            libraries.display()
        );
        program(&bin.join("rustc"), &says);
        program(&bin.join("cargo"), "");
    }

    fn places(dir: &Path) -> Places {
        Places {
            rustup_home: Some(dir.join("rustup")),
            distribution_bin: dir.join("bin"),
            cache: Some(dir.join("cache")),
            linker_on_path: None,
        }
    }

    #[test]
    fn a_complete_rustup_toolchain_comes_before_the_distribution_s() {
        let dir = tempfile::tempdir().unwrap();
        nightly(
            &dir.path().join("rustup"),
            "nightly-x86_64-unknown-linux-gnu",
            true,
        );
        distribution(&dir.path().join("bin"), true);
        program(
            &dir.path()
                .join("cache/bpf-linker-0.13.0-llvm-22/bin/bpf-linker"),
            "",
        );
        let found = BpfToolchain::discover_in(&places(dir.path())).unwrap();
        assert_eq!(found.compiler.route, Route::Rustup);
        assert_eq!(
            (found.compiler.release.as_str(), found.compiler.llvm_major),
            ("1.99.0", 22)
        );
    }

    #[test]
    fn a_nightly_without_source_leaves_the_distribution_s() {
        let dir = tempfile::tempdir().unwrap();
        nightly(
            &dir.path().join("rustup"),
            "nightly-x86_64-unknown-linux-gnu",
            false,
        );
        distribution(&dir.path().join("bin"), true);
        program(
            &dir.path()
                .join("cache/bpf-linker-0.13.0-llvm-22/bin/bpf-linker"),
            "",
        );
        let found = BpfToolchain::discover_in(&places(dir.path())).unwrap();
        assert_eq!(found.compiler.route, Route::Distribution);
    }

    #[test]
    fn the_plain_nightly_comes_before_dated_ones_and_newer_before_older() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("rustup");
        for name in [
            "nightly-2025-01-01-x",
            "nightly-2026-01-01-x",
            "nightly-x",
            "stable-x",
        ] {
            nightly(&home, name, false);
        }
        let names: Vec<_> = places(dir.path())
            .nightlies()
            .iter()
            .map(|dir| dir.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(
            names,
            ["nightly-x", "nightly-2026-01-01-x", "nightly-2025-01-01-x"]
        );
    }

    #[test]
    fn a_linker_on_path_serves_rustup_only() {
        let dir = tempfile::tempdir().unwrap();
        distribution(&dir.path().join("bin"), true);
        let mut places = places(dir.path());
        places.linker_on_path = Some(PathBuf::from("/opt/bpf-linker"));
        let missing = BpfToolchain::discover_in(&places).unwrap_err();
        assert_eq!(missing.distribution, "no bpf-linker for LLVM 22");
        nightly(&dir.path().join("rustup"), "nightly-x", true);
        assert_eq!(
            BpfToolchain::discover_in(&places).unwrap().linker,
            Path::new("/opt/bpf-linker")
        );
    }

    #[test]
    fn what_is_missing_is_one_line_that_names_setup() {
        let dir = tempfile::tempdir().unwrap();
        distribution(&dir.path().join("bin"), false);
        let said = BpfToolchain::discover_in(&places(dir.path()))
            .unwrap_err()
            .to_string();
        assert!(said.contains("no nightly toolchain"), "{said}");
        assert!(
            said.contains("has no core for bpfel-unknown-none"),
            "{said}"
        );
        assert!(said.ends_with("run `cargo xtask setup`"), "{said}");
        assert_eq!(said.lines().count(), 1);
    }
}
