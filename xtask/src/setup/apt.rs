//! Debian's package tools: what is installed, and installing.

use std::fmt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail, ensure};
use xtask::paths;

use crate::progress;

/// Whether this is Debian itself, which has the packages of the distribution route. Derived
/// systems have apt too, but not all of these packages.
pub(crate) fn is_debian() -> bool {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    names_debian(&release) && paths::find_on_path("apt-get").is_some()
}

fn names_debian(os_release: &str) -> bool {
    os_release
        .lines()
        .any(|line| matches!(line, "ID=debian" | "ID=\"debian\""))
}

/// Whether this process may install packages.
pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Whether dpkg has this package installed.
pub(super) fn is_installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|output| output.stdout == b"installed")
}

/// Whether apt knows a package of this name, by the lists it has.
pub(super) fn has_candidate(package: &str) -> bool {
    let mut show = Command::new("apt-cache");
    show.args(["--quiet", "show", package])
        .stderr(Stdio::null());
    show.output()
        .is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
}

/// The command that reads the package lists anew.
pub(super) fn update() -> Command {
    let mut command = apt_get();
    command.arg("update");
    command
}

/// The command that installs these packages and takes none away. Another apt is waited for.
pub(super) fn install(packages: &[String]) -> Command {
    let mut command = apt_get();
    command
        .args(["install", "--yes", "--no-remove", "--no-install-recommends"])
        .args(packages);
    command
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.args(["-q", "-o", "DPkg::Lock::Timeout=600"]);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Installs packages, with fresh lists, and says before what comes with them.
///
/// A package that could only come in place of another one is an error: what is installed on
/// somebody's machine is not ours to remove.
pub(super) fn install_now(packages: &[String]) -> Result<()> {
    refresh()?;
    let change = would_change(packages)?;
    if !change.removed.is_empty() {
        bail!(
            "installing {}: apt would have to remove {}, which are installed and conflict; decide \
             which you need, and install or remove packages yourself",
            packages.join(" "),
            change.removed.join(" "),
        );
    }
    eprint!("{change}");
    progress::run_quietly(
        &format!("installing {}", packages.join(" ")),
        &mut install(packages),
    )
}

/// Reads the package lists anew, if this process has not done so.
pub(crate) fn refresh() -> Result<()> {
    static READ: AtomicBool = AtomicBool::new(false);
    if !READ.load(Ordering::Relaxed) {
        progress::run_quietly("reading package lists", &mut update())?;
        READ.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// What apt would do to install these, by the lists it has.
pub(super) fn would_change(packages: &[String]) -> Result<Change> {
    let mut simulate = apt_get();
    simulate
        .args(["install", "--simulate", "--no-install-recommends"])
        .args(packages);
    let line = progress::shell_line(&simulate);
    let output = simulate.output();
    let output = output.with_context(|| format!("starting `{line}`"))?;
    ensure!(
        output.status.success(),
        "asking apt what it would install: `{line}` failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(Change::read(&String::from_utf8_lossy(&output.stdout)))
}

/// What apt would do, by names of packages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// What is not there yet.
    pub(super) added: Vec<String>,
    /// What is there, in another version.
    pub(super) replaced: Vec<String>,
    /// What is there, and would not be any more.
    pub(super) removed: Vec<String>,
}

impl Change {
    /// Reads what `apt-get --simulate` prints.
    fn read(simulation: &str) -> Self {
        let mut change = Self::default();
        for line in simulation.lines() {
            let mut words = line.split(' ');
            let (Some(what), Some(name)) = (words.next(), words.next()) else {
                continue;
            };
            let names = match what {
                "Remv" => &mut change.removed,
                // The version that is there is in brackets.
                "Inst" if words.next().is_some_and(|word| word.starts_with('[')) => {
                    &mut change.replaced
                }
                "Inst" => &mut change.added,
                _ => continue,
            };
            names.push(name.to_owned());
        }
        change
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, names) in [("installs", &self.added), ("updates", &self.replaced)] {
            if !names.is_empty() {
                writeln!(f, "    apt {what} {}: {}", names.len(), names.join(" "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_is_told_from_what_derives_from_it() {
        assert!(names_debian("NAME=\"Debian GNU/Linux\"\nID=debian\n"));
        assert!(!names_debian("ID=ubuntu\nID_LIKE=debian\n"));
    }

    #[test]
    fn what_a_simulation_says_is_told_before_anything_is_done() {
        let change = Change::read(
            "NOTE: This is only a simulation!\nRemv qemu-utils [1:7.2] []\n\
             Inst kmod (30 Debian:12 [amd64]) []\nInst libc6 [2.1] (2.2 Debian:12 [amd64])\n\
             Conf kmod (30 Debian:12 [amd64])\n",
        );
        assert_eq!(change.removed, ["qemu-utils"]);
        let told = change.to_string();
        assert_eq!(told, "    apt installs 1: kmod\n    apt updates 1: libc6\n");
    }

    #[test]
    fn nothing_is_ever_removed() {
        let line = progress::shell_line(&install(&["kmod".to_owned()]));
        assert!(line.contains(" --no-remove "), "{line}");
    }
}
