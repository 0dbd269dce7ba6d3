//! The tests on another kernel beside other steps of CI: this program once more, as a process whose
//! output is kept until it is wanted.
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

/// Where what they say is kept.
const LOGS: &str = "target/ci";

/// Beside compilers: the one on which most runs. It takes as long as all of them.
pub(crate) const BESIDE_COMPILERS: kernels::Line = kernels::Line::V5_10;

/// Beside the tests on the rest of the kernels.
pub(crate) const BESIDE_OTHERS: kernels::Line = kernels::Line::V6_1;

/// The tests on a kernel, at work. Ended if dropped.
pub(crate) struct Beside {
    child: Child,
    log: PathBuf,
    line: String,
}

impl Beside {
    /// Starts them: everything, or what that kernel can make a difference to.
    pub(crate) fn start(kernel: kernels::Line, full: bool) -> Result<Self> {
        let dir = paths::workspace_root().join(LOGS);
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        let log = dir.join(format!("linux-{kernel}.log"));
        let file = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        let errors = file.try_clone().context("sharing the log")?;
        let mut command = command(kernel, full);
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let line = shell_line(&command);
        let child = command.spawn();
        let child = child.with_context(|| format!("starting `{line}`"))?;
        let shown = log.display();
        println!("`{line}` runs beside what follows; its output is in {shown} until then");
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

impl Drop for Beside {
    fn drop(&mut self) {
        // Both fail only when it has already been waited for.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// This program, whatever has become of its file: cargo may have put another one in its place. It
/// ends with this process, and its virtual machines with it.
fn command(kernel: kernels::Line, full: bool) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(format!("/proc/{}/exe", std::process::id()))
        .args(["test", "--kernel", &kernel.to_string()]);
    command.args(full.then_some("--full"));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kernel_is_named() {
        let line = shell_line(&command(BESIDE_COMPILERS, true));
        assert!(line.ends_with(" test --kernel 5.10 --full"), "{line}");
        let line = shell_line(&command(BESIDE_OTHERS, false));
        assert!(line.ends_with(" test --kernel 6.1"), "{line}");
    }
}
