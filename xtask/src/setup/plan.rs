//! What `setup` is going to do, as a value: shown, printed as commands, or carried out.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, anyhow};
use xtask::paths;
use xtask::toolchain::{BPF_LINKER_VERSION, Compiler, NIGHTLY, Places};

use super::{apt, chart, guests, linker};
use crate::progress::{self, seconds};
use crate::vm::kernels;

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
    /// Debian packages for virtual machines, some of which need not be installed.
    Guests(Vec<String>),
    /// The nightly of rustup's that is meant, with `rust-src`.
    Nightly {
        /// With its clippy.
        clippy: bool,
    },
    /// A bpf-linker in the cache, with the LLVM of the compiler.
    Linker,
    /// The standard library for this target, for the toolchain in use.
    Target(&'static str),
    /// Something that renders or checks the chart, in the cache.
    Chart(chart::Tool),
    /// Kernels for virtual machines, in the cache.
    Kernels(Vec<kernels::Line>),
}

impl Step {
    fn describe(&self, cache: &str) -> String {
        match self {
            Self::Packages { names, purpose } => {
                format!("install packages for {purpose}: {}", names.join(" "))
            }
            Self::Guests(names) => {
                format!("install packages for virtual machines: {}", names.join(" "))
            }
            Self::Nightly { clippy } => format!(
                "install rustup's {NIGHTLY} with rust-src{}",
                if *clippy { " and clippy" } else { "" }
            ),
            Self::Linker => format!(
                "build bpf-linker {BPF_LINKER_VERSION} with the LLVM of that compiler into {cache} \
                 (a minute)"
            ),
            Self::Target(target) => format!("install the standard library for {target}"),
            Self::Chart(tool) => format!("put {tool} into {cache}"),
            Self::Kernels(lines) => {
                let names: Vec<_> = lines.iter().map(ToString::to_string).collect();
                format!("unpack Debian's kernels {} into {cache}", names.join(", "))
            }
        }
    }

    /// Why this process may not take the step, if so.
    fn obstacle(&self) -> Option<String> {
        match self {
            Self::Packages { .. } | Self::Guests(_) if !apt::is_debian() => {
                Some("this is not Debian".to_owned())
            }
            Self::Packages { .. } | Self::Guests(_) if !apt::is_root() => {
                Some("not running as root".to_owned())
            }
            Self::Nightly { .. } | Self::Target(_) if paths::find_on_path("rustup").is_none() => {
                Some("there is no rustup".to_owned())
            }
            Self::Kernels(_) if !apt::is_debian() => {
                Some("the kernels are Debian packages".to_owned())
            }
            Self::Chart(tool) => tool.obstacle(),
            _ => None,
        }
    }

    fn commands(&self) -> Vec<String> {
        match self {
            Self::Packages { names, .. } | Self::Guests(names) if apt::is_debian() => vec![
                format!("sudo {}", plain(&apt::update())),
                format!("sudo {}", plain(&apt::install(names))),
            ],
            Self::Packages { names, purpose } => elsewhere(purpose, names),
            Self::Guests(names) => elsewhere("virtual machines", names),
            Self::Nightly { clippy } => vec![progress::shell_line(&nightly(*clippy))],
            // Nothing but a compiler is in the way of it.
            Self::Linker => vec![format!(
                "cargo xtask setup    # once more: builds bpf-linker {BPF_LINKER_VERSION}"
            )],
            Self::Target(target) => vec![progress::shell_line(&add_target(target))],
            Self::Chart(tool) => vec![tool.remedy()],
            Self::Kernels(_) => {
                vec!["cargo xtask setup --vm    # once more, on Debian".to_owned()]
            }
        }
    }

    fn carry_out(&self) -> Result<()> {
        let cache = paths::cache_dir()?;
        match self {
            Self::Packages { names, .. } => apt::install_now(names),
            Self::Guests(names) => guests::install_now(&cache, names),
            Self::Nightly { clippy } => progress::run(&mut nightly(*clippy)),
            Self::Target(target) => progress::run(&mut add_target(target)),
            Self::Linker => linker::install_now(&cache, &present_compiler()?),
            Self::Chart(tool) => tool.install(&cache),
            Self::Kernels(lines) => kernels::install(&cache, lines),
        }
    }
}

/// What to do on a system whose packages are not known.
fn elsewhere(purpose: &str, names: &[String]) -> Vec<String> {
    vec![format!(
        "# {purpose}: install what Debian calls {}",
        names.join(" ")
    )]
}

/// Without the environment, which sudo would not hand on, and without quiet flags.
fn plain(command: &Command) -> String {
    let mut bare = Command::new(command.get_program());
    bare.args(command.get_args().skip(3));
    progress::shell_line(&bare)
}

fn nightly(clippy: bool) -> Command {
    let mut command = Command::new("rustup");
    command.args(["toolchain", "install", NIGHTLY, "--profile", "minimal"]);
    command.args(["--component", "rust-src"]);
    if clippy {
        command.args(["--component", "clippy"]);
    }
    command
}

fn add_target(target: &str) -> Command {
    let mut command = Command::new("rustup");
    // In the workspace, so that it is for the toolchain which that names.
    command
        .args(["target", "add", target])
        .current_dir(paths::workspace_root());
    command
}

/// The compiler that is there by now.
fn present_compiler() -> Result<Compiler> {
    let places = Places::of_this_machine();
    places.compiler().map_err(|distribution| {
        let rustup = places.rustup_compiler().err();
        let rustup = rustup.map_or_else(String::new, |reason| reason.to_string());
        anyhow!(
            "building bpf-linker: there is still no compiler for the BPF target (rustup: {rustup}; \
             distribution: {distribution}): install the former with `{}`",
            progress::shell_line(&nightly(false))
        )
    })
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
        for line in self.steps.iter().flat_map(Step::commands) {
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
        let names = vec!["rustc-web".to_owned(), "cargo-web".to_owned()];
        Plan {
            steps: vec![
                Step::Packages {
                    names,
                    purpose: "the BPF target",
                },
                Step::Linker,
            ],
            cache: PathBuf::from("/cache"),
        }
    }

    #[test]
    fn the_summary_names_every_step() {
        let said = plan().summary();
        assert!(said.contains("rustc-web cargo-web"), "{said}");
        assert!(
            said.contains("bpf-linker 0.13.0 with the LLVM of"),
            "{said}"
        );
        assert!(said.contains(" into /cache"), "{said}");
    }

    #[test]
    fn the_commands_can_be_typed() {
        let lines = plan().commands();
        let linker = lines.last().unwrap();
        assert!(linker.starts_with("cargo xtask setup  "), "{linker}");
        if apt::is_debian() {
            assert_eq!(lines[0], "sudo apt-get update");
            assert!(
                lines[1].starts_with("sudo apt-get install --yes --no-remove"),
                "{}",
                lines[1]
            );
        }
    }

    #[test]
    fn the_nightly_is_one_of_a_day() {
        let line = Step::Nightly { clippy: false }.commands().concat();
        assert!(line.contains("toolchain install nightly-20"), "{line}");
        assert!(line.ends_with("--component rust-src"), "{line}");
        let described = Step::Nightly { clippy: true }.describe("");
        assert!(
            described.contains(NIGHTLY) && described.ends_with(" and clippy"),
            "{described}"
        );
    }
}
