//! Debian's package tools: what is installed, and installing.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
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

/// The development files of an LLVM, which bpf-linker is built with.
pub(super) fn llvm_packages(major: u32) -> Vec<String> {
    vec![format!("llvm-{major}-dev"), format!("libpolly-{major}-dev")]
}

/// Where Debian puts an LLVM.
pub(super) fn llvm_prefix(major: u32) -> String {
    format!("/usr/lib/llvm-{major}")
}

/// Whether the development files of this LLVM are there.
pub(super) fn has_llvm(major: u32) -> bool {
    paths::is_executable(&Path::new(&llvm_prefix(major)).join("bin/llvm-config"))
}

/// The command that reads the package lists anew.
pub(super) fn update() -> Command {
    let mut command = apt_get();
    command.arg("update");
    command
}

/// The command that installs these packages. Another apt is waited for.
pub(super) fn install(packages: &[String]) -> Command {
    let mut command = apt_get();
    command
        .args(["install", "--yes", "--no-install-recommends"])
        .args(packages);
    command
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.args(["-q", "-o", "DPkg::Lock::Timeout=600"]);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Installed packages that may give way: qemu's image tools, when they come from a newer release
/// than the qemu that apt has. Nothing here uses them.
const MAY_GIVE_WAY: &[&str] = &["qemu-utils"];

/// Installs packages, with fresh lists.
///
/// A package that could only come in place of another one is an error: what is installed on
/// somebody's machine is not ours to remove, [`MAY_GIVE_WAY`] aside.
pub(super) fn install_now(packages: &[String]) -> Result<()> {
    progress::run_quietly("reading package lists", &mut update())?;
    let (given_up, kept): (Vec<_>, Vec<_>) = would_be_removed(packages)
        .into_iter()
        .partition(|package| MAY_GIVE_WAY.contains(&package.as_str()));
    if !kept.is_empty() {
        bail!(
            "installing {}: apt would have to remove {}, which are installed and conflict; \
             decide which you need, then run `{}` yourself",
            packages.join(" "),
            kept.join(" "),
            progress::shell_line(&install(packages))
        );
    }
    for package in given_up {
        eprintln!("    {package} is removed: the version installed does not go with apt's qemu");
    }
    progress::run_quietly(
        &format!("installing {}", packages.join(" ")),
        &mut install(packages),
    )
}

/// Installed packages that apt would remove to install these.
fn would_be_removed(packages: &[String]) -> Vec<String> {
    let mut simulate = apt_get();
    simulate
        .args(["install", "--simulate", "--no-install-recommends"])
        .args(packages);
    let output = simulate.stderr(Stdio::null()).output();
    removals(&output.map(|output| output.stdout).unwrap_or_default())
}

fn removals(simulation: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(simulation);
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix("Remv ")?.split(' ').next());
    names.map(str::to_owned).collect()
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
    fn what_a_simulation_removes_is_known() {
        let said =
            b"NOTE: This is only a simulation!\nRemv qemu-utils [1:7.2] []\nInst kmod (30)\n";
        assert_eq!(removals(said), ["qemu-utils"]);
    }
}
