//! The programs that tests are made of: how they are built, which tests they have, and what their
//! environment tells them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use xtask::paths;

use crate::cargo::{self, Object, cargo};
use crate::choice::Choice;
use crate::progress::shell_line;
use crate::suites::Part;

/// Names the agent that suites run.
pub(crate) const AGENT_ENV: &str = "CULVERT_AGENT";

/// Names the directory of images that suites look into.
pub(crate) const IMAGES_ENV: &str = "CULVERT_IMAGES";

/// The suite that does.
pub(crate) const OF_IMAGES: [&str; 2] = ["image", "installed"];

/// Set to 1, tells suites that the processors are emulated.
pub(crate) const EMULATED_ENV: &str = "CULVERT_EMULATED";

/// Where cargo runs the suites.
pub(crate) const SUITES_DIR: &str = "tests";

/// The program that runs in the pods of tests.
pub(crate) const POD: &str = "culvert-pod";

/// The smallest test. Whoever builds it along with a program has cargo take the features that all
/// packages and their tests ask for, so that what they stand on is compiled once.
pub(crate) const SMALLEST: &str = "dependencies";

/// Builds the agent, and what runs in pods.
pub(crate) fn build_agent(object: Object) -> Result<PathBuf> {
    let programs = ["--bin", "proxy-agent", "--bin", POD, "--test", SMALLEST];
    let built = cargo::build(cargo("build", object).args(programs))?;
    Ok(cargo::the("proxy-agent", &built)?.path.clone())
}

/// Builds a test program.
pub(crate) fn program(part: &Part<'_>, object: Object) -> Result<PathBuf> {
    let name = &part.program.name;
    let built = cargo::build(cargo("test", object).args(["--no-run", "--test", name]))?;
    Ok(cargo::the(name, &built)?.path.clone())
}

/// The arguments that have a program run the tests that are meant; `None` if there is none. It is asked
/// in the `environment` that it will run in, on which depends what tests it has.
pub(crate) fn tests_of(
    part: &Part<'_>,
    program: &Path,
    choice: &Choice,
    environment: &[(&str, String)],
) -> Result<Option<Vec<String>>> {
    let mut command = Command::new(program);
    command
        .args(["--list", "--format", "terse"])
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .current_dir(paths::workspace_root().join(SUITES_DIR));
    let line = shell_line(&command);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("starting `{line}`"))?;
    ensure!(
        output.status.success(),
        "`{line}` failed ({})",
        output.status
    );
    let listed = String::from_utf8(output.stdout).with_context(|| format!("reading `{line}`"))?;
    let names = choice.among(&listed, &part.suites);
    if names.is_empty() {
        return Ok(None);
    }
    let options = choice.options.iter().map(String::as_str);
    let arguments = ["--exact"].into_iter().chain(options).chain(names);
    Ok(Some(arguments.map(str::to_owned).collect()))
}

/// An error where nothing was chosen.
pub(crate) fn ensure_any(chose_any: bool, arguments: &[String]) -> Result<()> {
    ensure!(
        chose_any,
        "no test of those suites is called so: {}",
        arguments.join(" ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::suites::Program;

    #[test]
    fn a_program_is_asked_for_the_tests_that_it_has_in_that_environment() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        let script = "#!/bin/sh\necho \"conformance::$CULVERT_BACKEND/a: test\"\n";
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let program = Program {
            name: "scenarios".to_owned(),
            suites: vec!["conformance".to_owned()],
        };
        let part = Part {
            program: &program,
            suites: vec!["conformance"],
        };
        let environment = [("CULVERT_BACKEND", "mine".to_owned())];
        let asked = tests_of(&part, &path, &Choice::default(), &environment).unwrap();
        assert_eq!(asked.unwrap(), ["--exact", "conformance::mine/a"]);
    }
}
