//! Where compilers and linkers are looked for, and the looking for compilers.
//!
//! The places are values, so that a test can point them at directories of its own.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{
    BPF_TARGET, Compiler, DISTRIBUTION_SERIES, NIGHTLY, NIGHTLY_RUSTC, Route, RustcVersion, Unfit,
    ask_version, linkers, output_of,
};
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

    /// A compiler, with or without a linker; else what is wrong with the distribution's.
    pub fn compiler(&self) -> Result<Compiler, Unfit> {
        let rustup = self.rustup_compiler();
        rustup.or_else(|_| self.distribution_compiler())
    }

    /// rustup's [`NIGHTLY`] with `rust-src`, or why there is none.
    pub fn rustup_compiler(&self) -> Result<Compiler, Unfit> {
        let mut unfit = Unfit::Missing(format!("no {NIGHTLY}"));
        for dir in self.nightlies() {
            let name = dir.file_name().unwrap_or_default().to_string_lossy();
            let bin = dir.join("bin");
            let version = match ask_version(&bin.join("rustc")) {
                Ok(version) => version,
                Err(reason) => {
                    unfit = Unfit::Missing(reason);
                    continue;
                }
            };
            let commit = version.commit_date.as_deref().unwrap_or("an unknown day");
            if (version.release.as_str(), commit) != NIGHTLY_RUSTC {
                // Said of the first one only, and not if the right one is incomplete.
                if unfit == Unfit::Missing(format!("no {NIGHTLY}")) {
                    unfit = Unfit::Other(format!(
                        "no {NIGHTLY}, which the kernel programs are built with; {name} is rustc \
                         {} of {commit}",
                        version.release
                    ));
                }
                continue;
            }
            if !dir
                .join("lib/rustlib/src/rust/library/core/Cargo.toml")
                .is_file()
            {
                unfit = Unfit::Missing(format!("{name} lacks rust-src"));
                continue;
            }
            return Ok(Compiler {
                route: Route::Rustup,
                bin,
                release: version.release,
                llvm_major: version.llvm_major,
            });
        }
        Err(unfit)
    }

    /// Directories of nightly toolchains: the one that is called as the pin first.
    fn nightlies(&self) -> Vec<PathBuf> {
        let Some(home) = &self.rustup_home else {
            return Vec::new();
        };
        let Ok(entries) = fs::read_dir(home.join("toolchains")) else {
            return Vec::new();
        };
        let begins = |dir: &Path, with: &str| {
            let name = dir.file_name().and_then(OsStr::to_str).unwrap_or_default();
            name.starts_with(with)
        };
        let mut found: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|dir| begins(dir, "nightly"))
            .collect();
        found.sort_by_key(|dir| (!begins(dir, NIGHTLY), dir.clone()));
        found
    }

    /// The distribution's compiler, if `core` for the BPF target is installed beside it, or what
    /// is missing.
    pub fn distribution_compiler(&self) -> Result<Compiler, Unfit> {
        let rustc = self.distribution_bin.join("rustc");
        for tool in [&rustc, &self.distribution_bin.join("cargo")] {
            if !paths::is_executable(tool) {
                return Err(Unfit::Missing(format!("no {}", tool.display())));
            }
        }
        let RustcVersion {
            release,
            llvm_major,
            ..
        } = ask_version(&rustc).map_err(Unfit::Missing)?;
        if !release.starts_with(DISTRIBUTION_SERIES) {
            return Err(Unfit::Other(format!(
                "{} is {release}; the kernel programs are built with {DISTRIBUTION_SERIES}x",
                rustc.display()
            )));
        }
        let mut ask = Command::new(&rustc);
        ask.args(["--print", "target-libdir", "--target", BPF_TARGET]);
        let libraries = PathBuf::from(output_of(&mut ask).map_err(Unfit::Missing)?.trim());
        if !holds_core(&libraries) {
            let reason = format!("{} has no core for {BPF_TARGET}", rustc.display());
            return Err(Unfit::Missing(reason));
        }
        let bin = self.distribution_bin.clone();
        Ok(Compiler {
            route: Route::Distribution,
            bin,
            release,
            llvm_major,
        })
    }

    /// A bpf-linker for this compiler, or why there is none. See `linkers`.
    pub fn linker_for(&self, compiler: &Compiler) -> Result<PathBuf, Unfit> {
        linkers::choose(self, compiler)
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

    use super::super::{BPF_LINKER_VERSION, BpfToolchain};
    use super::*;

    /// An executable that prints what a compiler would.
    fn program(file: &Path, says: &str) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("#!/bin/sh\n{says}\n")).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    const LLVM: &str = "echo 'LLVM version: 22.1.8'";

    /// As a compiler of this release and day says it.
    fn version(release: &str, day: &str) -> String {
        format!("echo 'release: {release}'; echo 'commit-date: {day}'; {LLVM}")
    }

    fn nightly(home: &Path, name: &str, source: bool) {
        nightly_of(home, name, NIGHTLY_RUSTC, source);
    }

    fn nightly_of(home: &Path, name: &str, (release, day): (&str, &str), source: bool) {
        let dir = home.join("toolchains").join(name);
        program(&dir.join("bin/rustc"), &version(release, day));
        if source {
            let core = dir.join("lib/rustlib/src/rust/library/core");
            fs::create_dir_all(&core).unwrap();
            fs::write(core.join("Cargo.toml"), "").unwrap();
        }
    }

    fn distribution(bin: &Path, core: bool) {
        distribution_of(bin, "1.96.0", core);
    }

    fn distribution_of(bin: &Path, release: &str, core: bool) {
        let libraries = bin.join("libraries");
        fs::create_dir_all(&libraries).unwrap();
        if core {
            fs::write(libraries.join("libcore-0.rlib"), "").unwrap();
        }
        let says = format!(
            "if [ \"$1\" = --print ]; then echo '{}'; else {}; fi",
            libraries.display(),
            version(release, "2026-05-25")
        );
        program(&bin.join("rustc"), &says);
        program(&bin.join("cargo"), "");
    }

    /// Where `setup` puts the linker.
    fn ours(dir: &Path) -> PathBuf {
        dir.join("cache/bpf-linker-0.13.0-llvm-22/bin/bpf-linker")
    }

    fn linker(file: &Path, release: &str) {
        program(file, &format!("echo 'bpf-linker {release}'"));
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
        linker(&ours(dir.path()), BPF_LINKER_VERSION);
        let found = BpfToolchain::discover_in(&places(dir.path())).unwrap();
        assert_eq!(found.compiler.route, Route::Rustup);
        assert_eq!(
            (found.compiler.release.as_str(), found.compiler.llvm_major),
            (NIGHTLY_RUSTC.0, 22)
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
        linker(&ours(dir.path()), BPF_LINKER_VERSION);
        let found = BpfToolchain::discover_in(&places(dir.path())).unwrap();
        assert_eq!(found.compiler.route, Route::Distribution);
    }

    #[test]
    fn the_nightly_that_is_meant_is_taken_whatever_it_is_called() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("rustup");
        let places = places(dir.path());
        nightly_of(&home, "nightly-x", ("1.99.0-nightly", "2026-08-01"), true);
        let said = places.rustup_compiler().unwrap_err();
        assert!(matches!(said, Unfit::Other(_)), "{said:?}");
        for part in [NIGHTLY, "nightly-x is rustc 1.99.0-nightly of 2026-08-01"] {
            assert!(said.to_string().contains(part), "{said}");
        }
        nightly(&home, &format!("{NIGHTLY}-x"), false);
        let said = places.rustup_compiler().unwrap_err().to_string();
        assert_eq!(said, format!("{NIGHTLY}-x lacks rust-src"));
        nightly(&home, "nightly-x", true);
        let found = places.rustup_compiler().unwrap();
        assert_eq!(found.bin, home.join("toolchains/nightly-x/bin"));
    }

    #[test]
    fn a_distribution_that_went_on_to_another_compiler_is_told_with_both() {
        let dir = tempfile::tempdir().unwrap();
        distribution_of(&dir.path().join("bin"), "1.98.1", true);
        let said = places(dir.path()).distribution_compiler().unwrap_err();
        assert!(matches!(said, Unfit::Other(_)), "{said:?}");
        let said = said.to_string();
        assert!(
            said.contains("rustc is 1.98.1; ") && said.ends_with("built with 1.96.x"),
            "{said}"
        );
    }

    #[test]
    fn a_linker_on_path_serves_rustup_only() {
        let dir = tempfile::tempdir().unwrap();
        distribution(&dir.path().join("bin"), true);
        let mut places = places(dir.path());
        let own = dir.path().join("opt/bpf-linker");
        linker(&own, BPF_LINKER_VERSION);
        places.linker_on_path = Some(own.clone());
        let missing = BpfToolchain::discover_in(&places).unwrap_err();
        assert_eq!(missing.distribution, "no bpf-linker for LLVM 22");
        nightly(&dir.path().join("rustup"), "nightly-x", true);
        assert_eq!(BpfToolchain::discover_in(&places).unwrap().linker, own);
    }

    #[test]
    fn a_linker_is_asked_which_one_it_is_on_both_routes() {
        let dir = tempfile::tempdir().unwrap();
        distribution(&dir.path().join("bin"), true);
        nightly(&dir.path().join("rustup"), "nightly-x", true);
        let mut places = places(dir.path());
        let own = dir.path().join("opt/bpf-linker");
        linker(&own, "0.9.14");
        places.linker_on_path = Some(own.clone());
        let said = BpfToolchain::discover_in(&places).unwrap_err();
        let wanted = format!("{} is 0.9.14, not {BPF_LINKER_VERSION}", own.display());
        assert_eq!(said.rustup, wanted);
        // The one in the cache is not believed for its name, either.
        linker(&ours(dir.path()), "0.12.0");
        let said = BpfToolchain::discover_in(&places).unwrap_err();
        assert!(said.distribution.contains(" is 0.12.0, not "), "{said}");
        // One that does not run, as when its LLVM was taken away.
        program(&ours(dir.path()), "exit 127");
        let said = BpfToolchain::discover_in(&places).unwrap_err();
        assert!(said.distribution.contains("bpf-linker failed"), "{said}");
        linker(&ours(dir.path()), BPF_LINKER_VERSION);
        let found = BpfToolchain::discover_in(&places).unwrap();
        assert_eq!(found.linker, ours(dir.path()));
    }

    #[test]
    fn what_is_missing_is_one_line_that_names_setup() {
        let dir = tempfile::tempdir().unwrap();
        distribution(&dir.path().join("bin"), false);
        let said = BpfToolchain::discover_in(&places(dir.path()))
            .unwrap_err()
            .to_string();
        assert!(said.contains(&format!("no {NIGHTLY}")), "{said}");
        assert!(
            said.contains("has no core for bpfel-unknown-none"),
            "{said}"
        );
        assert!(said.ends_with("run `cargo xtask setup`"), "{said}");
        assert_eq!(said.lines().count(), 1);
    }
}
