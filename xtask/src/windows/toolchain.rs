//! Which toolchain compiles for Windows.
//!
//! Two routes lead there, as to the BPF target. *rustup*: the toolchain that runs this command,
//! after `rustup target add`. *Distribution*: Debian's second compiler (`rustc-web`) builds the
//! standard library from its source package, where rustup cannot download. Both link with
//! mingw-w64. This module only looks; installing is the business of `setup`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fmt, fs};

use xtask::toolchain::{Route, ask_version, output_of};
use xtask::{environment, paths};

/// The compilation target: what can be linked without anything of Microsoft's.
pub(crate) const TARGET: &str = "x86_64-pc-windows-gnu";

/// Links, and compiles the little C there is.
pub(crate) const LINKER: &str = "x86_64-w64-mingw32-gcc";

/// A complete toolchain for Windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WindowsToolchain {
    /// How it comes by the standard library.
    pub(crate) route: Route,
    /// The directory of its `cargo` and `rustc`.
    bin: PathBuf,
    /// As it names itself, such as `1.96.0`.
    release: String,
}

/// Why there is none. Displays as one line that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    /// What the rustup route lacks, if a compiler is missing.
    pub(crate) compiler: Option<(String, String)>,
    /// Whether the linker is missing.
    pub(crate) linker: bool,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no toolchain for {TARGET} (")?;
        if let Some((rustup, distribution)) = &self.compiler {
            write!(f, "rustup: {rustup}; distribution: {distribution}")?;
        }
        if self.linker {
            let separator = if self.compiler.is_some() { "; " } else { "" };
            write!(f, "{separator}linker: no {LINKER} on the PATH")?;
        }
        write!(f, "): run `cargo xtask setup --windows`")
    }
}

impl std::error::Error for Missing {}

/// Where is looked.
struct Places {
    /// The directory of the compiler that runs this command.
    present_bin: Option<PathBuf>,
    /// Where the distribution puts its compiler.
    distribution_bin: PathBuf,
    /// The linker.
    linker: Option<PathBuf>,
}

impl WindowsToolchain {
    /// The toolchain to use on this machine: rustup's if it is complete, else the
    /// distribution's.
    pub(crate) fn discover() -> Result<Self, Missing> {
        let cargo = env::var_os("CARGO").map(PathBuf::from);
        Self::discover_in(&Places {
            present_bin: cargo.and_then(|cargo| Some(cargo.parent()?.to_path_buf())),
            distribution_bin: PathBuf::from("/usr/bin"),
            linker: paths::find_on_path(LINKER),
        })
    }

    fn discover_in(places: &Places) -> Result<Self, Missing> {
        let rustup = match &places.present_bin {
            Some(bin) => with_ready_library(bin),
            None => Err("this was not started by cargo".to_owned()),
        };
        let found = rustup.or_else(|rustup| {
            with_source(&places.distribution_bin).map_err(|distribution| (rustup, distribution))
        });
        let linker = places.linker.is_none();
        match found {
            Ok(toolchain) if !linker => Ok(toolchain),
            found => Err(Missing {
                compiler: found.err(),
                linker,
            }),
        }
    }

    /// A command that runs this toolchain's cargo in `root`, free of what an outer cargo set.
    pub(super) fn cargo(&self, root: &Path) -> Command {
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

    /// The cargo arguments that select the target, and its standard library.
    pub(super) fn target_args(&self) -> &'static [&'static str] {
        match self.route {
            Route::Rustup => &["--target", TARGET],
            Route::Distribution => &["--target", TARGET, "-Z", "build-std=std,panic_abort"],
        }
    }
}

impl fmt::Display for WindowsToolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            route,
            bin,
            release,
        } = self;
        write!(f, "{route} route: rustc {release} in {}, ", bin.display())?;
        f.write_str(match route {
            Route::Rustup => "standard library ready-made",
            Route::Distribution => "standard library from source (90 s the first time)",
        })
    }
}

fn with_ready_library(bin: &Path) -> Result<WindowsToolchain, String> {
    let rustc = bin.join("rustc");
    let mut ask = Command::new(&rustc);
    ask.args(["--print", "target-libdir", "--target", TARGET]);
    let libraries = PathBuf::from(output_of(&mut ask)?.trim());
    let ready = fs::read_dir(libraries).is_ok_and(|entries| {
        entries
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-"))
    });
    if !ready {
        return Err(format!("{} has no std for {TARGET}", rustc.display()));
    }
    toolchain(Route::Rustup, bin)
}

fn with_source(bin: &Path) -> Result<WindowsToolchain, String> {
    let rustc = bin.join("rustc");
    for tool in [&rustc, &bin.join("cargo")] {
        if !paths::is_executable(tool) {
            return Err(format!("no {}", tool.display()));
        }
    }
    let sysroot = output_of(Command::new(&rustc).args(["--print", "sysroot"]))?;
    let source = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/std/Cargo.toml");
    if !source.is_file() {
        return Err(format!("{} lacks the source of std", rustc.display()));
    }
    toolchain(Route::Distribution, bin)
}

fn toolchain(route: Route, bin: &Path) -> Result<WindowsToolchain, String> {
    let release = ask_version(&bin.join("rustc"))?.release;
    Ok(WindowsToolchain {
        route,
        bin: bin.to_path_buf(),
        release,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

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

    fn add(file: PathBuf) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }

    fn places(dir: &Path) -> Places {
        compiler(&dir.join("present"));
        compiler(&dir.join("distribution"));
        Places {
            present_bin: Some(dir.join("present")),
            distribution_bin: dir.join("distribution"),
            linker: Some(dir.join("gcc")),
        }
    }

    #[test]
    fn a_ready_library_comes_before_source() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(dir.path());
        let source = "distribution/lib/rustlib/src/rust/library/std/Cargo.toml";
        add(dir.path().join(source));
        let found = WindowsToolchain::discover_in(&places).unwrap();
        assert_eq!(found.route, Route::Distribution);
        assert!(found.target_args().contains(&"build-std=std,panic_abort"));
        add(dir.path().join("present/libraries/libstd-1.rlib"));
        let found = WindowsToolchain::discover_in(&places).unwrap();
        assert_eq!((found.route, &*found.release), (Route::Rustup, "1.99.0"));
        assert_eq!(found.target_args(), ["--target", TARGET]);
    }

    #[test]
    fn what_is_missing_is_one_line_that_names_setup() {
        let dir = tempfile::tempdir().unwrap();
        let mut places = places(dir.path());
        places.linker = None;
        let said = WindowsToolchain::discover_in(&places)
            .unwrap_err()
            .to_string();
        for part in [
            "has no std for",
            "lacks the source",
            "no x86_64-w64-mingw32-gcc",
        ] {
            assert!(said.contains(part), "{said}");
        }
        assert!(
            said.ends_with("run `cargo xtask setup --windows`"),
            "{said}"
        );
        add(dir.path().join("present/libraries/libstd-1.rlib"));
        let missing = WindowsToolchain::discover_in(&places).unwrap_err();
        assert_eq!((missing.compiler, missing.linker), (None, true));
    }
}
