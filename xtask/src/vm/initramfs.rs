//! The first root file system of a guest: busybox, the modules that reach the host's files, and
//! the script that puts the real root together.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::cpio::Archive;
use super::kernels::Kernel;

/// Modules for the shared root file system and the console that output goes through. Kernels that
/// have one built in have no module of that name, and need none.
const MODULES: &[&str] = &["virtio_pci", "virtiofs", "overlay", "virtio_console"];

/// Directories that `init.sh` mounts on.
const DIRECTORIES: &[&str] = &["dev", "proc", "sys", "host", "upper", "new", "modules"];

/// Writes it for this kernel.
pub(super) fn write(file: &Path, kernel: &Kernel, busybox: &Path) -> Result<()> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
    let mut archive = Archive::default();
    for directory in DIRECTORIES {
        archive.directory(directory);
    }
    archive.program("busybox", &read(busybox)?);
    archive.program("init", include_bytes!("../../vm/init.sh"));
    let mut order = String::new();
    for path in modules_in_order(kernel)? {
        let name = path
            .file_name()
            .context("a module has no name")?
            .to_string_lossy();
        let content = match name.strip_suffix(".xz") {
            Some(_) => decompressed(&path)?,
            None => read(&path)?,
        };
        let name = name.trim_end_matches(".xz");
        archive.file(&format!("modules/{name}"), &content);
        order.push_str(name);
        order.push('\n');
    }
    archive.file("modules/order", order.as_bytes());
    fs::write(file, archive.finish()).with_context(|| format!("writing {}", file.display()))
}

/// Files of the modules and all they depend on, in the order to load them.
fn modules_in_order(kernel: &Kernel) -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = Vec::new();
    for module in MODULES {
        let mut modprobe = Command::new(xtask::paths::find_on_path("modprobe").context(
            "there is no modprobe to resolve modules with: run `cargo xtask setup --vm`",
        )?);
        modprobe.args(["--show-depends", "--set-version", &kernel.release]);
        let output = modprobe
            .arg("--dirname")
            .arg(&kernel.dir)
            .arg(module)
            .output();
        let output = output.context("running modprobe")?;
        for path in files_to_load(&String::from_utf8_lossy(&output.stdout)) {
            if !found.contains(&path) {
                found.push(path);
            }
        }
    }
    ensure!(
        !found.is_empty(),
        "kernel {} has none of the modules {MODULES:?}",
        kernel.release
    );
    Ok(found)
}

/// `insmod FILE OPTIONS` lines of modprobe; `builtin NAME` lines need no loading.
fn files_to_load(listing: &str) -> Vec<PathBuf> {
    let rest = listing
        .lines()
        .filter_map(|line| line.strip_prefix("insmod "));
    rest.filter_map(|rest| rest.split_whitespace().next())
        .map(PathBuf::from)
        .collect()
}

fn decompressed(path: &Path) -> Result<Vec<u8>> {
    let output = Command::new("xz")
        .args(["--decompress", "--stdout"])
        .arg(path)
        .output();
    let output = output.with_context(|| format!("decompressing {}", path.display()))?;
    if !output.status.success() {
        bail!(
            "decompressing {} failed ({})",
            path.display(),
            output.status
        );
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_modules_need_no_loading() {
        let listing = "builtin virtio\ninsmod /k/virtio_ring.ko.xz \ninsmod /k/virtio_pci.ko a=1\n";
        let files = files_to_load(listing);
        assert_eq!(
            files,
            [
                Path::new("/k/virtio_ring.ko.xz"),
                Path::new("/k/virtio_pci.ko")
            ]
        );
    }
}
