//! Packages for virtual machines: installed where nothing has to give way for them. Where something
//! would, qemu is unpacked into the cache.

use std::path::Path;

use anyhow::Result;

use super::apt;
use crate::vm::unpacked;

/// What qemu is in, and the file system daemon of a Debian that has it in a package of its own.
pub(super) const OF_QEMU: &[&str] = &["qemu-system-x86", "qemu-system-common", "virtiofsd"];

/// Installs them, or has them otherwise.
pub(super) fn install_now(cache: &Path, packages: &[String]) -> Result<()> {
    let of_qemu = |package: &&String| OF_QEMU.contains(&package.as_str());
    let (qemu, others): (Vec<&String>, Vec<&String>) = packages.iter().partition(of_qemu);
    let owned = |names: Vec<&String>| names.into_iter().cloned().collect::<Vec<_>>();
    let (qemu, others) = (owned(qemu), owned(others));
    if !others.is_empty() {
        apt::install_now(&others)?;
    }
    if qemu.is_empty() {
        return Ok(());
    }
    apt::refresh()?;
    let change = apt::would_change(&qemu)?;
    if change.removed.is_empty() {
        return apt::install_now(&qemu);
    }
    eprintln!(
        "    apt would remove {} for qemu, which is therefore not installed, but unpacked into {}",
        change.removed.join(" "),
        cache.display()
    );
    unpacked::install(cache, &[change.added, change.replaced].concat())
}
