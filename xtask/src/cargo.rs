//! The host's cargo: building, finding what was built, and running tests with a count.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use xtask::toolchain::BpfToolchain;
use xtask::{SKIP_EBPF_ENV, paths};

use crate::progress::shell_line;
use crate::tally::Tally;

/// With or without the kernel object; the two have target directories of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// The agent embeds the kernel programs.
    Embedded,
    /// The agent embeds nothing.
    Skipped,
}

impl Object {
    /// For what needs none: embedded all the same where that can be, because what tests have built
    /// is there already.
    pub(crate) fn at_hand() -> Self {
        match BpfToolchain::discover() {
            Ok(_) => Self::Embedded,
            Err(_) => Self::Skipped,
        }
    }
}

/// A cargo subcommand of the toolchain that runs us, in the workspace root. `--locked`
/// throughout: the lock file is an input, and a stale one is an error.
pub(crate) fn cargo(subcommand: &str, object: Object) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let root = paths::workspace_root();
    let mut command = Command::new(program);
    command
        .arg(subcommand)
        .arg("--locked")
        .current_dir(root)
        .stdin(Stdio::null());
    match object {
        Object::Embedded => command.env_remove(SKIP_EBPF_ENV),
        Object::Skipped => command
            .env(SKIP_EBPF_ENV, "1")
            .arg("--target-dir")
            .arg(paths::quick_target_dir(root)),
    };
    command
}

/// A program that cargo built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Executable {
    /// The name of its target.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) path: PathBuf,
}

/// Runs a cargo command that builds, and returns the programs it made or found up to date.
pub(crate) fn build(command: &mut Command) -> Result<Vec<Executable>> {
    build_told(command.args(TELLING))
}

/// What has cargo tell what it built.
pub(crate) const TELLING: [&str; 2] = ["--message-format", "json-render-diagnostics"];

/// The same, of a command that has [`TELLING`] among its arguments.
pub(crate) fn build_told(command: &mut Command) -> Result<Vec<Executable>> {
    let mut executables = Vec::new();
    let succeeded = each_line(command, |line| executables.extend(executable_in(line)))?;
    if !succeeded {
        bail!("`{}` failed", shell_line(command));
    }
    Ok(executables)
}

/// The one program of this name among those built.
pub(crate) fn the<'a>(name: &str, among: &'a [Executable]) -> Result<&'a Executable> {
    let found = among.iter().find(|executable| executable.name == name);
    found.with_context(|| format!("cargo built no program called {name}"))
}

fn executable_in(message: &str) -> Option<Executable> {
    let message: Value = serde_json::from_str(message).ok()?;
    let path = message.get("executable")?.as_str()?.into();
    let name = message.get("target")?.get("name")?.as_str()?.to_owned();
    Some(Executable { name, path })
}

/// Runs a cargo command that tests, shows what it prints, and counts. `Ok(false)` if it failed.
pub(crate) fn test(command: &mut Command, tally: &mut Tally) -> Result<bool> {
    each_line(command, |line| {
        println!("{line}");
        tally.read(line);
    })
}

/// Hands each line of standard output on as it comes; standard error is left alone.
fn each_line(command: &mut Command, mut on_line: impl FnMut(&str)) -> Result<bool> {
    let line = shell_line(command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting `{line}`"))?;
    let output = child.stdout.take().expect("standard output was piped");
    for text in BufReader::new(output).lines() {
        on_line(&text.with_context(|| format!("reading what `{line}` prints"))?);
    }
    let status = child
        .wait()
        .with_context(|| format!("waiting for `{line}`"))?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_read_from_cargo_s_messages() {
        let message = r#"{"reason":"compiler-artifact","target":{"name":"traffic","kind":["test"]},
            "executable":"/t/traffic-1"}"#;
        let found = executable_in(message).unwrap();
        assert_eq!(
            (found.name.as_str(), found.path.to_str()),
            ("traffic", Some("/t/traffic-1"))
        );
        let library = r#"{"reason":"compiler-artifact","target":{"name":"l"},"executable":null}"#;
        assert_eq!(executable_in(library), None);
        assert_eq!(executable_in("plain text"), None);
    }

    #[test]
    fn builds_without_the_object_are_kept_apart() {
        let line = shell_line(&cargo("build", Object::Skipped));
        assert!(line.contains("CULVERT_SKIP_EBPF=1"), "{line}");
        assert!(line.contains("target/quick"), "{line}");
        assert!(!shell_line(&cargo("build", Object::Embedded)).contains("target/quick"));
    }
}
