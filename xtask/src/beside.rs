//! The tests on the oldest kernel beside other steps of CI: this program once more, as a process
//! whose output is kept until it is wanted.
//!
//! An emulated machine keeps little more than one processor busy, and compilers leave one idle at
//! many moments. Where output goes and who is to blame stays clear, because the two never share a
//! terminal.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use xtask::paths;

use crate::progress::shell_line;
use crate::tally::Tally;
use crate::vm::kernels;

/// Where what it says is kept.
const LOG: &str = "target/ci/oldest-kernel.log";

/// The one on which most runs: it takes as long as all other steps that need no quiet machine.
pub(crate) const KERNEL: kernels::Line = kernels::Line::V5_10;

/// The tests on [`KERNEL`], at work. Ended if dropped.
pub(crate) struct OldestKernel {
    child: Child,
    log: PathBuf,
    line: String,
}

impl OldestKernel {
    /// Starts them: everything, or what that kernel can make a difference to.
    pub(crate) fn start(full: bool) -> Result<Self> {
        let log = paths::workspace_root().join(LOG);
        let dir = log.parent().context("the log lies in no directory")?;
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let file = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        let errors = file.try_clone().context("sharing the log")?;
        let mut command = arguments(full);
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let line = shell_line(&command);
        let child = command.spawn();
        let child = child.with_context(|| format!("starting `{line}`"))?;
        println!("`{line}` runs beside what follows; its output is in {LOG} until then");
        Ok(Self { child, log, line })
    }

    /// Waits for them and shows what they said. `Ok(false)` if they failed.
    pub(crate) fn finish(mut self, tally: &mut Tally) -> Result<bool> {
        let status = self.child.wait();
        let status = status.with_context(|| format!("waiting for `{}`", self.line))?;
        let said = fs::read(&self.log);
        let said = said.with_context(|| format!("reading {}", self.log.display()))?;
        for line in String::from_utf8_lossy(&said).lines() {
            println!("{line}");
            tally.read(line);
        }
        Ok(status.success())
    }
}

impl Drop for OldestKernel {
    fn drop(&mut self) {
        // Both fail only when it has already been waited for.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// This program, whatever has become of its file: cargo may have put another one in its place. It
/// ends with this process, and its virtual machines with it.
fn arguments(full: bool) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(format!("/proc/{}/exe", std::process::id()))
        .args(["test", "--kernel", &KERNEL.to_string()]);
    command.args(full.then_some("--full"));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kernel_is_named() {
        let line = shell_line(&arguments(true));
        assert!(line.ends_with(" test --kernel 5.10 --full"), "{line}");
        assert!(!shell_line(&arguments(false)).contains("--full"));
    }
}
