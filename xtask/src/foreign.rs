//! Compilers for targets that are not this machine's own.
//!
//! Two routes lead there, as to the BPF target. *rustup*: the toolchain that runs this command,
//! after `rustup target add`. *Distribution*: Debian's second compiler (`rustc-web`) builds the
//! standard library from its source package, where rustup cannot download. What links, and compiles
//! C, is the business of who asks. This module only looks; installing is the business of `setup`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fmt, fs};

use xtask::environment;
use xtask::toolchain::{Route, ask_version, output_of};

/// The packages of the distribution route.
pub(crate) const PACKAGES: &[&str] = &["rustc-web", "cargo-web", "rust-web-src"];

/// A compiler and the standard library for a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Foreign {
    /// The target.
    target: &'static str,
    /// How it comes by the standard library.
    pub(crate) route: Route,
    /// The directory of its `cargo` and `rustc`.
    bin: PathBuf,
    /// As it names itself, such as `1.96.0`.
    pub(crate) release: String,
}

/// What either route lacks. Displays as a part of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    rustup: String,
    distribution: String,
}

impl Missing {
    /// Where the other route does not lead to `target`, whatever is installed.
    pub(crate) fn rustup_alone(target: &str) -> Self {
        Self {
            rustup: format!("this toolchain has no std for {target}"),
            distribution: "it is not for that processor".to_owned(),
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rustup,
            distribution,
        } = self;
        write!(f, "rustup: {rustup}; distribution: {distribution}")
    }
}

/// Where is looked.
pub(crate) struct Places {
    /// The directory of the compiler that runs this command.
    pub(crate) present_bin: Option<PathBuf>,
    /// Where the distribution puts its compiler.
    pub(crate) distribution_bin: PathBuf,
}

impl Places {
    /// The places of this machine.
    pub(crate) fn of_this_machine() -> Self {
        let cargo = env::var_os("CARGO").map(PathBuf::from);
        Self {
            present_bin: cargo.and_then(|cargo| Some(cargo.parent()?.to_path_buf())),
            distribution_bin: PathBuf::from("/usr/bin"),
        }
    }
}

impl Foreign {
    /// The compiler to use: rustup's if it has the library, else the distribution's.
    pub(crate) fn find(target: &'static str, places: &Places) -> Result<Self, Missing> {
        let rustup = match &places.present_bin {
            Some(bin) => with_ready_library(target, bin),
            None => Err("this was not started by cargo".to_owned()),
        };
        rustup.or_else(|rustup| {
            with_source(target, &places.distribution_bin).map_err(|distribution| Missing {
                rustup,
                distribution,
            })
        })
    }

    /// A command that runs this toolchain's cargo in `root`, free of what an outer cargo set.
    pub(crate) fn cargo(&self, root: &Path) -> Command {
        let cargo = self.bin.join("cargo");
        let mut command = Command::new(&cargo);
        environment::forget_outer_cargo(&mut command, root);
        command
            .current_dir(root)
            .env("PATH", environment::path_with(&[&self.bin]))
            .env("CARGO", &cargo)
            .env("RUSTC", self.bin.join("rustc"));
        if self.route == Route::Distribution {
            // A stable compiler; building the standard library is an unstable feature of cargo.
            command.env("RUSTC_BOOTSTRAP", "1");
        }
        command
    }

    /// The cargo arguments that select the target, and its standard library with this runtime for
    /// panics: `panic_abort`, `panic_unwind`.
    pub(crate) fn target_args(&self, panics: &str) -> Vec<String> {
        let mut args = vec!["--target".to_owned(), self.target.to_owned()];
        if self.route == Route::Distribution {
            args.extend(["-Z".to_owned(), format!("build-std=std,{panics}")]);
        }
        args
    }

    /// The directory that holds `lib/rustlib`.
    pub(crate) fn sysroot(&self) -> Result<PathBuf, String> {
        sysroot(&self.bin.join("rustc"))
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            route,
            bin,
            release,
            ..
        } = self;
        write!(f, "{route} route: rustc {release} in {}, ", bin.display())?;
        f.write_str(match route {
            Route::Rustup => "standard library ready-made",
            Route::Distribution => "standard library from source (90 s the first time)",
        })
    }
}

fn with_ready_library(target: &'static str, bin: &Path) -> Result<Foreign, String> {
    let rustc = bin.join("rustc");
    let mut ask = Command::new(&rustc);
    ask.args(["--print", "target-libdir", "--target", target]);
    let libraries = PathBuf::from(output_of(&mut ask)?.trim());
    let ready = fs::read_dir(libraries).is_ok_and(|entries| {
        entries
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-"))
    });
    if !ready {
        return Err(format!("{} has no std for {target}", rustc.display()));
    }
    foreign(target, Route::Rustup, bin)
}

fn with_source(target: &'static str, bin: &Path) -> Result<Foreign, String> {
    let rustc = bin.join("rustc");
    for tool in [&rustc, &bin.join("cargo")] {
        if !xtask::paths::is_executable(tool) {
            return Err(format!("no {}", tool.display()));
        }
    }
    let source = sysroot(&rustc)?.join("lib/rustlib/src/rust/library/std/Cargo.toml");
    if !source.is_file() {
        return Err(format!("{} lacks the source of std", rustc.display()));
    }
    foreign(target, Route::Distribution, bin)
}

fn sysroot(rustc: &Path) -> Result<PathBuf, String> {
    let said = output_of(Command::new(rustc).args(["--print", "sysroot"]))?;
    Ok(PathBuf::from(said.trim()))
}

fn foreign(target: &'static str, route: Route, bin: &Path) -> Result<Foreign, String> {
    let release = ask_version(&bin.join("rustc"))?.release;
    Ok(Foreign {
        target,
        route,
        bin: bin.to_path_buf(),
        release,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// What makes the compiler in `distribution` one that has the source.
    pub(crate) const SOURCE: &str = "distribution/lib/rustlib/src/rust/library/std/Cargo.toml";
    /// What makes the compiler in `present` one that has the library.
    pub(crate) const LIBRARY: &str = "present/libraries/libstd-1.rlib";

    /// A compiler whose standard library, and the source of it, are below `bin`.
    fn compiler(bin: &Path) {
        fs::create_dir_all(bin).unwrap();
        let here = bin.display();
        let says = format!(
            "case $2 in target-libdir) echo {here}/libraries;; sysroot) echo {here};; \
             *) echo 'release: 1.99.0'; echo 'LLVM version: 22.1';; esac"
        );
        for (name, says) in [("rustc", says.as_str()), ("cargo", "")] {
            let file = bin.join(name);
            fs::write(&file, format!("#!/bin/sh\n{says}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    pub(crate) fn add(file: PathBuf) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }

    pub(crate) fn places(dir: &Path) -> Places {
        compiler(&dir.join("present"));
        compiler(&dir.join("distribution"));
        Places {
            present_bin: Some(dir.join("present")),
            distribution_bin: dir.join("distribution"),
        }
    }

    #[test]
    fn a_ready_library_comes_before_source() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(dir.path());
        add(dir.path().join(SOURCE));
        let found = Foreign::find("a-b-c", &places).unwrap();
        assert_eq!(found.route, Route::Distribution);
        let args = found.target_args("panic_abort");
        assert_eq!(args[2..], ["-Z", "build-std=std,panic_abort"]);
        add(dir.path().join(LIBRARY));
        let found = Foreign::find("a-b-c", &places).unwrap();
        assert_eq!((found.route, &*found.release), (Route::Rustup, "1.99.0"));
        assert_eq!(found.target_args("panic_abort"), ["--target", "a-b-c"]);
    }

    #[test]
    fn what_either_route_lacks_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let said = Foreign::find("a-b-c", &places(dir.path()));
        let said = said.unwrap_err().to_string();
        for part in ["has no std for a-b-c", "lacks the source"] {
            assert!(said.contains(part), "{said}");
        }
    }
}
