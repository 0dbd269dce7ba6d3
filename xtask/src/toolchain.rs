//! Which toolchain compiles for the BPF target.
//!
//! Two routes lead there. *rustup*: a nightly with the `rust-src` component builds `core`
//! itself. *Distribution*: Debian's second compiler (`rustc-web`) comes with `core` already
//! built for the target, which is what works where rustup cannot download components. Both need
//! a bpf-linker that reads the bitcode of their LLVM.
//!
//! Which releases of all three is written down here, and each is asked before it is used: what
//! compiles the kernel programs decides what the verifier is shown, and only these were shown to
//! every kernel that is supported. This module only looks; installing is the business of `cargo
//! xtask setup`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{environment, paths};

mod linkers;
mod places;

pub use places::Places;

/// The compilation target of the kernel programs. Little-endian only, like every host that
/// Culvert is tested on.
pub const BPF_TARGET: &str = "bpfel-unknown-none";

/// The nightly of the rustup route.
pub const NIGHTLY: &str = "nightly-2026-05-20";

/// What its rustc says of itself: its release, and the day of its last commit. A toolchain that is
/// called otherwise, and is the same, does as well.
const NIGHTLY_RUSTC: (&str, &str) = ("1.97.0-nightly", "2026-05-19");

/// The releases of the distribution's compiler, as each begins. Debian mends those; it also brings
/// newer ones into a stable release.
pub const DISTRIBUTION_SERIES: &str = "1.96.";

/// The bpf-linker release.
pub const BPF_LINKER_VERSION: &str = "0.13.0";

/// How `core` for the BPF target comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A rustup nightly with `rust-src`; cargo builds `core` (`-Z build-std`).
    Rustup,
    /// The distribution's compiler, with a ready-made `core`.
    Distribution,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rustup => "rustup",
            Self::Distribution => "distribution",
        })
    }
}

/// A compiler for the BPF target, without regard to a linker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiler {
    /// How it gets `core`.
    pub route: Route,
    /// The directory of its `cargo`, `rustc` and `cargo-clippy`, called by absolute path: the
    /// workspace's `rust-toolchain.toml` steers rustup's proxies, and must not steer this.
    pub bin: PathBuf,
    /// As it names itself, such as `1.96.0`.
    pub release: String,
    /// The major version of its LLVM, which bpf-linker has to match.
    pub llvm_major: u32,
}

impl Compiler {
    /// The library that holds its LLVM. A linker that is linked with it reads what it writes.
    pub fn llvm_library(&self) -> Result<PathBuf, String> {
        linkers::llvm_library(&self.bin, self.llvm_major)
    }
}

/// Why something that was looked for cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It is not there.
    Missing(String),
    /// It is there, of another release.
    Other(String),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Missing(reason) | Self::Other(reason)) = self;
        f.write_str(reason)
    }
}

/// A complete toolchain for the BPF target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BpfToolchain {
    /// The compiler.
    pub compiler: Compiler,
    /// The bpf-linker.
    pub linker: PathBuf,
}

/// Why there is no toolchain for the BPF target. Displays as one line that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What the rustup route lacks.
    pub rustup: String,
    /// What the distribution route lacks.
    pub distribution: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no toolchain for {BPF_TARGET}, which the kernel programs need (rustup: {}; \
             distribution: {}): run `cargo xtask setup`",
            self.rustup, self.distribution
        )
    }
}

impl std::error::Error for Missing {}

impl BpfToolchain {
    /// The toolchain to use on this machine: rustup's if it is complete, else the
    /// distribution's.
    pub fn discover() -> Result<Self, Missing> {
        Self::discover_in(&Places::of_this_machine())
    }

    /// Like [`BpfToolchain::discover`], looking in these places only.
    pub fn discover_in(places: &Places) -> Result<Self, Missing> {
        let complete = |compiler: Result<Compiler, Unfit>| -> Result<Self, Unfit> {
            let compiler = compiler?;
            let linker = places.linker_for(&compiler)?;
            Ok(Self { compiler, linker })
        };
        let rustup = match complete(places.rustup_compiler()) {
            Ok(toolchain) => return Ok(toolchain),
            Err(reason) => reason.to_string(),
        };
        complete(places.distribution_compiler()).map_err(|distribution| Missing {
            rustup,
            distribution: distribution.to_string(),
        })
    }

    /// A command that runs this toolchain's cargo in `root`, free of what an outer cargo set.
    pub fn cargo(&self, root: &Path) -> Command {
        let mut command = Command::new(self.compiler.bin.join("cargo"));
        environment::forget_outer_cargo(&mut command, root);
        let mut first = vec![self.compiler.bin.as_path()];
        first.extend(self.linker.parent());
        command
            .current_dir(root)
            .env("PATH", environment::path_with(&first))
            .env("CARGO", self.compiler.bin.join("cargo"))
            .env("RUSTC", self.compiler.bin.join("rustc"));
        if self.compiler.route == Route::Distribution {
            // A stable compiler; aya-ebpf uses unstable features.
            command.env("RUSTC_BOOTSTRAP", "1");
        }
        command
    }

    /// The cargo arguments that select the BPF target, and `core` for it where it must be built.
    pub fn target_args(&self) -> &'static [&'static str] {
        match self.compiler.route {
            Route::Rustup => &["--target", BPF_TARGET, "-Z", "build-std=core"],
            Route::Distribution => &["--target", BPF_TARGET],
        }
    }
}

impl fmt::Display for BpfToolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compiler {
            route,
            bin,
            release,
            llvm_major,
        } = &self.compiler;
        write!(
            f,
            "{route} route: rustc {release} (LLVM {llvm_major}) in {}",
            bin.display()
        )?;
        write!(f, ", {}", self.linker.display())
    }
}

/// What a compiler says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RustcVersion {
    /// Its release, such as `1.96.0`.
    pub release: String,
    /// The day of its last commit, where it knows that.
    pub commit_date: Option<String>,
    /// The major version of its LLVM.
    pub llvm_major: u32,
}

/// Asks a compiler which one it is.
pub fn ask_version(rustc: &Path) -> Result<RustcVersion, String> {
    let said = output_of(Command::new(rustc).arg("-vV"))?;
    let field = |name: &str| {
        said.lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
    };
    let release = field("release:").map(str::to_owned);
    let llvm = field("LLVM version:")
        .and_then(|v| v.split('.').next())
        .and_then(|v| v.parse().ok());
    let version = release.zip(llvm).map(|(release, llvm_major)| RustcVersion {
        release,
        commit_date: field("commit-date:").map(str::to_owned),
        llvm_major,
    });
    version.ok_or_else(|| format!("{} -vV names no LLVM version", rustc.display()))
}

/// Standard output of a short command, with the wrong `rust-toolchain.toml` out of its way.
pub fn output_of(command: &mut Command) -> Result<String, String> {
    environment::forget_outer_cargo(command, paths::workspace_root());
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{program} does not run: {error}"))?;
    if !output.status.success() {
        return Err(format!("{program} failed ({})", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
