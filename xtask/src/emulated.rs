//! The kernel-dependent suites on another kernel: which tests, and the script that runs them in a
//! virtual machine.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use xtask::paths;

use crate::cargo::Object;
use crate::choice::Choice;
use crate::matrix;
use crate::progress::{quoted, seconds};
use crate::suites;
use crate::tally::Tally;
use crate::test_programs::{
    AGENT_ENV, EMULATED_ENV, SUITES_DIR, build_agent, ensure_any, program, tests_of,
};
use crate::vm::{self, kernels};

/// How long all suites may take on one kernel, in software emulation and beside compilers.
const GUEST_LIMIT: Duration = Duration::from_mins(40);
/// The same for everything: some suites take hours there.
const FULL_LIMIT: Duration = Duration::from_hours(12);

/// What to run on another kernel.
pub(crate) struct Wanted<'a> {
    /// Which suites, those that depend on the kernel if none is named.
    pub(crate) suites: &'a [String],
    /// Arguments for the test programs.
    pub(crate) arguments: &'a [String],
    /// Every suite and scenario, also where that kernel can make no difference.
    pub(crate) full: bool,
    /// Processors of the virtual machine.
    pub(crate) cpus: usize,
}

/// Programs that are built, and what another kernel does with them.
pub(crate) struct Prepared {
    line: kernels::Line,
    /// The suites, as people read them.
    names: String,
    script: String,
    cpus: usize,
    time_limit: Duration,
}

/// Builds what is wanted on one other kernel. All that cargo has to do for it is done then: while it
/// runs, others may build.
pub(crate) fn prepare(line: kernels::Line, wanted: &Wanted<'_>) -> Result<Prepared> {
    let packages = suites::packages()?;
    let parts = match wanted.suites {
        [] => suites::parts(&packages, &matrix::suites(line, wanted.full)),
        names => suites::selection(&packages, names)?.parts,
    };
    let mut choice = Choice::of(wanted.arguments)?;
    if !wanted.full && wanted.suites.is_empty() {
        choice.leave_out = Some(matrix::left_out(line));
    }
    let agent = build_agent(Object::Embedded)?;
    let mut runs = Vec::new();
    for part in &parts {
        let program = program(part, Object::Embedded)?;
        let tests = if part.program.is_suite() {
            Some(wanted.arguments.to_vec())
        } else {
            tests_of(part, &program, &choice, &[])?
        };
        runs.extend(tests.map(|tests| (program, tests)));
    }
    ensure_any(!runs.is_empty(), wanted.arguments)?;
    let names: Vec<_> = parts
        .iter()
        .flat_map(|part| &part.suites)
        .copied()
        .collect();
    Ok(Prepared {
        line,
        names: names.join(", "),
        script: guest_script(&runs, &agent)?,
        cpus: wanted.cpus,
        time_limit: if wanted.full { FULL_LIMIT } else { GUEST_LIMIT },
    })
}

impl Prepared {
    /// Runs it in a virtual machine. `Ok(false)` if something failed.
    pub(crate) fn run(&self, tally: &mut Tally) -> Result<bool> {
        let Self { line, names, .. } = self;
        eprintln!("kernel {line}: booting a virtual machine for {names}");
        let started = Instant::now();
        let job = vm::Job {
            line: *line,
            script: &self.script,
            cpus: self.cpus,
            time_limit: self.time_limit,
        };
        let mut here = Tally::default();
        let code = vm::run(&job, |text| {
            println!("{text}");
            here.read(text);
        })?;
        eprintln!("kernel {line}: {here} in {}", seconds(started.elapsed()));
        let none_ran = here.passed == 0;
        *tally += here;
        if code == 0 && none_ran {
            bail!("kernel {line}: the suites {names} ran no test");
        }
        Ok(code == 0)
    }
}

/// What the guest does: each program with its arguments, in the directory cargo would run it in.
fn guest_script(runs: &[(PathBuf, Vec<String>)], agent: &Path) -> Result<String> {
    let root = paths::workspace_root();
    let shell = |path: &Path| quoted(&path.to_string_lossy());
    let mut lines = vec!["failed=0".to_owned()];
    let mut dirs = vec![root];
    for path in runs
        .iter()
        .map(|(program, _)| program.as_path())
        .chain([agent])
    {
        dirs.push(path.parent().context("a program lies in no directory")?);
    }
    // A checkout below /tmp or /run is hidden by the guest's own file systems there.
    for dir in dirs.into_iter().map(shell) {
        let mount = format!("mkdir -p {dir} && mount --bind /run/host{dir} {dir}");
        lines.push(format!("[ -e {dir} ] || {{ {mount}; }}"));
    }
    lines.push(format!("cd {}/{SUITES_DIR} || exit 1", shell(root)));
    lines.push(format!(
        "export {AGENT_ENV}={} {EMULATED_ENV}=1",
        shell(agent)
    ));
    for (program, arguments) in runs {
        let program = shell(program);
        let mut command = vec![program.clone()];
        command.extend(arguments.iter().map(|argument| quoted(argument)));
        let command = command.join(" ");
        lines.push(format!("echo \"     Running {program} on $(uname -r)\""));
        lines.push(format!("{command} || failed=1"));
    }
    lines.push("exit $failed\n".to_owned());
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_runs_every_program_and_reports_any_failure() {
        let arguments = || vec!["--exact".to_owned(), "a b".to_owned()];
        let runs = ["/t/debug/deps/privileged-1", "/t/debug/deps/scenarios-2"]
            .map(|program| (PathBuf::from(program), arguments()));
        let script = guest_script(&runs, Path::new("/t/debug/proxy-agent")).unwrap();
        for (program, _) in runs {
            let line = format!("{} --exact 'a b' || failed=1\n", program.display());
            assert!(script.contains(&line), "{script}");
        }
        assert!(
            script.contains("export CULVERT_AGENT=/t/debug/proxy-agent CULVERT_EMULATED=1\n"),
            "{script}"
        );
        assert!(script.ends_with("exit $failed\n"), "{script}");
    }
}
