//! Debian's package tools: what is installed, and installing.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;
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

/// The command that installs these packages.
///
/// Another apt is waited for. A package that could only come in place of another one is an
/// error: what is installed on somebody's machine is not ours to remove.
pub(super) fn install(packages: &[String]) -> Command {
    let mut command = apt_get();
    command
        .args(["install", "--yes", "--no-install-recommends", "--no-remove"])
        .args(packages);
    command
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.args(["-q", "-o", "DPkg::Lock::Timeout=600"]);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Installs packages, with fresh lists.
pub(super) fn install_now(packages: &[String]) -> Result<()> {
    progress::run_quietly("reading package lists", &mut update())?;
    let what = format!("installing {}", packages.join(" "));
    progress::run_quietly(&what, &mut install(packages))
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
    fn installing_never_removes() {
        let line = progress::shell_line(&install(&["a".to_owned(), "b".to_owned()]));
        assert!(line.contains("--no-remove"), "{line}");
        assert!(line.ends_with(" a b"), "{line}");
    }
}
