//! What `setup` is going to do, as a value: shown, printed as commands, or carried out.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};
use xtask::paths;
use xtask::toolchain::{BPF_LINKER_VERSION, Places};

use super::{apt, linker};
use crate::progress::{self, seconds};
use crate::vm::kernels;
use crate::windows::toolchain::TARGET;

/// One thing to install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Debian packages, and what they are for.
    Packages {
        /// Their names.
        names: Vec<String>,
        /// What for.
        purpose: &'static str,
    },
    /// A rustup nightly with `rust-src`.
    RustSource,
    /// A bpf-linker in the cache, against the LLVM of the compiler.
    Linker {
        /// The LLVM's major version; unknown before the compiler is there.
        llvm_major: Option<u32>,
    },
    /// The standard library for Windows, for the toolchain in use.
    WindowsTarget,
    /// Kernels for virtual machines, in the cache.
    Kernels(Vec<kernels::Line>),
}

/// The LLVM of Debian's `rustc-web` at present, to plan with before that is installed. The
/// linker is built against what the installed compiler then says.
pub(super) const DEBIAN_LLVM: u32 = 22;

impl Step {
    fn describe(&self, cache: &str) -> String {
        match self {
            Self::Packages { names, purpose } => {
                format!("install packages for {purpose}: {}", names.join(" "))
            }
            Self::RustSource => "install a rustup nightly with rust-src and clippy".to_owned(),
            Self::Linker { llvm_major } => format!(
                "build bpf-linker {BPF_LINKER_VERSION} against LLVM {} into {cache} (a minute)",
                llvm_major.map_or_else(|| "of that compiler".to_owned(), |major| major.to_string())
            ),
            Self::WindowsTarget => format!("install the standard library for {TARGET}"),
            Self::Kernels(lines) => {
                let names: Vec<_> = lines.iter().map(ToString::to_string).collect();
                format!("unpack Debian's kernels {} into {cache}", names.join(", "))
            }
        }
    }

    /// Why this process may not take the step, if so.
    fn obstacle(&self) -> Option<String> {
        match self {
            Self::Packages { .. } if !apt::is_debian() => Some("this is not Debian".to_owned()),
            Self::Packages { .. } if !apt::is_root() => Some("not running as root".to_owned()),
            Self::RustSource | Self::WindowsTarget if paths::find_on_path("rustup").is_none() => {
                Some("there is no rustup".to_owned())
            }
            Self::Linker {
                llvm_major: Some(major),
            } if !(apt::has_llvm(*major) || apt::is_debian() && apt::is_root()) => Some(format!(
                "the development files of LLVM {major} are not installed"
            )),
            Self::Kernels(_) if !apt::is_debian() => {
                Some("the kernels are Debian packages".to_owned())
            }
            _ => None,
        }
    }

    fn commands(&self, cache: &std::path::Path) -> Vec<String> {
        match self {
            Self::Packages { names, .. } if apt::is_debian() => vec![
                format!("sudo {}", plain(&apt::update())),
                format!("sudo {}", plain(&apt::install(names))),
            ],
            Self::Packages { names, purpose } => {
                vec![format!(
                    "# {purpose}: install what Debian calls {}",
                    names.join(" ")
                )]
            }
            Self::RustSource => vec![progress::shell_line(&rust_source())],
            // Debian's compiler and its LLVM come together; elsewhere the nightly decides.
            Self::Linker { llvm_major: None } if !apt::is_debian() => vec![format!(
                "cargo install bpf-linker --version {BPF_LINKER_VERSION}    # or a released \
                 binary; for the LLVM that `rustc +nightly -vV` names"
            )],
            Self::Linker { llvm_major } => {
                vec![linker::shell_line(cache, llvm_major.unwrap_or(DEBIAN_LLVM))]
            }
            Self::WindowsTarget => vec![progress::shell_line(&windows_target())],
            Self::Kernels(_) => {
                vec!["cargo xtask setup --vm    # once more, on Debian".to_owned()]
            }
        }
    }

    fn carry_out(&self) -> Result<()> {
        let cache = paths::cache_dir()?;
        match self {
            Self::Packages { names, .. } => apt::install_now(names),
            Self::RustSource => progress::run(&mut rust_source()),
            Self::WindowsTarget => progress::run(&mut windows_target()),
            Self::Linker { .. } => linker::install_now(&cache, present_llvm()?),
            Self::Kernels(lines) => kernels::install(&cache, lines),
        }
    }
}

/// Without the environment, which sudo would not hand on, and without quiet flags.
fn plain(command: &Command) -> String {
    let mut bare = Command::new(command.get_program());
    bare.args(command.get_args().skip(3));
    progress::shell_line(&bare)
}

fn rust_source() -> Command {
    let mut command = Command::new("rustup");
    command.args(["toolchain", "install", "nightly", "--profile", "minimal"]);
    command.args(["--component", "rust-src", "--component", "clippy"]);
    command
}

fn windows_target() -> Command {
    let mut command = Command::new("rustup");
    // In the workspace, so that it is for the toolchain which that names.
    command
        .args(["target", "add", TARGET])
        .current_dir(paths::workspace_root());
    command
}

/// The LLVM of the compiler that is there by now.
fn present_llvm() -> Result<u32> {
    let places = Places::of_this_machine();
    match (places.rustup_compiler(), places.distribution_compiler()) {
        (Ok(compiler), _) | (_, Ok(compiler)) => Ok(compiler.llvm_major),
        (Err(rustup), Err(distribution)) => bail!(
            "building bpf-linker: there is still no compiler for the BPF target (rustup: \
             {rustup}; distribution: {distribution})"
        ),
    }
}

/// All that is to be installed, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The steps, each of which may rely on those before it.
    pub(crate) steps: Vec<Step>,
    /// Where tools go.
    pub(crate) cache: PathBuf,
}

impl Plan {
    /// Whether there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Prints it for a person.
    pub(crate) fn show(&self) {
        eprintln!("to be set up once on this machine:");
        for (number, step) in (1..).zip(&self.steps) {
            eprintln!(
                "  {number}. {}",
                step.describe(&self.cache.display().to_string())
            );
        }
    }

    /// The steps in one line.
    pub(crate) fn summary(&self) -> String {
        let cache = self.cache.display().to_string();
        self.steps
            .iter()
            .map(|step| step.describe(&cache))
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Whether this process may take every step.
    pub(crate) fn may_install(&self) -> bool {
        self.steps.iter().all(|step| step.obstacle().is_none())
    }

    /// Why it may not; empty if it may.
    pub(crate) fn reason_it_may_not(&self) -> String {
        self.steps
            .iter()
            .find_map(Step::obstacle)
            .unwrap_or_default()
    }

    /// The plan as commands to type.
    pub(crate) fn commands(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for line in self
            .steps
            .iter()
            .flat_map(|step| step.commands(&self.cache))
        {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines
    }

    /// Takes every step, saying how long each took.
    pub(crate) fn carry_out(&self) -> Result<()> {
        let count = self.steps.len();
        for (number, step) in (1..).zip(&self.steps) {
            let what = step.describe(&self.cache.display().to_string());
            eprintln!("[{number}/{count}] {what}");
            let started = Instant::now();
            step.carry_out()?;
            eprintln!("[{number}/{count}] done in {}", seconds(started.elapsed()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let names = vec!["rustc-web".to_owned(), "llvm-22-dev".to_owned()];
        Plan {
            steps: vec![
                Step::Packages {
                    names,
                    purpose: "the BPF target",
                },
                Step::Linker {
                    llvm_major: Some(22),
                },
            ],
            cache: PathBuf::from("/cache"),
        }
    }

    #[test]
    fn the_summary_names_every_step() {
        let said = plan().summary();
        assert!(said.contains("rustc-web llvm-22-dev"), "{said}");
        assert!(
            said.contains("bpf-linker 0.13.0 against LLVM 22 into /cache"),
            "{said}"
        );
    }

    #[test]
    fn the_commands_can_be_typed() {
        let lines = plan().commands();
        let linker = lines.last().unwrap();
        assert!(linker.contains("cargo install bpf-linker"), "{linker}");
        assert!(
            linker.contains("--root /cache/bpf-linker-0.13.0-llvm-22"),
            "{linker}"
        );
        if apt::is_debian() {
            assert_eq!(lines[0], "sudo apt-get update");
            assert!(
                lines[1].starts_with("sudo apt-get install --yes"),
                "{}",
                lines[1]
            );
        }
    }
}
