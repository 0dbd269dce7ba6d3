//! A qemu in the cache, unpacked from Debian's packages and not installed: for machines where
//! installing it would take away a package that somebody has.
//!
//! Kernels are had in the same way. What is here runs with the libraries beside it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xtask::paths;

use crate::progress;

/// Debian's directories of libraries, relative to a root.
const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];

/// Where qemu looks for firmware, relative to a root.
const FIRMWARE: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];

/// A root file system that holds a qemu and its libraries, and nothing that boots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unpacked {
    root: PathBuf,
}

impl Unpacked {
    /// The one in the cache.
    pub(crate) fn find(cache: &Path) -> Option<Self> {
        let found = Self {
            root: cache.join("qemu"),
        };
        paths::is_executable(&found.file("usr/bin/qemu-system-x86_64")).then_some(found)
    }

    /// A file in it, by its path on Debian.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The environment in which its programs find their libraries, and qemu its modules.
    pub(crate) fn environment(&self) -> [(&'static str, OsString); 2] {
        let libraries = LIBRARIES.map(|dir| self.file(dir).into_os_string());
        [
            ("LD_LIBRARY_PATH", libraries.join(":".as_ref())),
            (
                "QEMU_MODULE_DIR",
                self.file(LIBRARIES[0]).join("qemu").into_os_string(),
            ),
        ]
    }

    /// Where qemu finds its firmware.
    pub(crate) fn firmware(&self) -> [PathBuf; 2] {
        FIRMWARE.map(|dir| self.file(dir))
    }
}

/// Downloads these packages and unpacks them into the cache, where they appear complete or not at
/// all.
pub(crate) fn install(cache: &Path, packages: &[String]) -> Result<()> {
    fs::create_dir_all(cache).with_context(|| format!("making {}", cache.display()))?;
    let work = tempfile::Builder::new()
        .prefix("download-")
        .tempdir_in(cache)
        .with_context(|| format!("making a directory in {}", cache.display()))?;
    let (archives, tree) = (work.path().join("archives"), work.path().join("tree"));
    fs::create_dir(&archives).with_context(|| format!("making {}", archives.display()))?;
    let mut download = Command::new("apt-get");
    download
        // apt's own user cannot write into a directory of this user.
        .args(["-q", "-oAPT::Sandbox::User=", "download"])
        .args(packages)
        .current_dir(&archives);
    progress::run_quietly("downloading qemu and its libraries", &mut download)?;
    let listed = fs::read_dir(&archives);
    for archive in listed.with_context(|| format!("listing {}", archives.display()))? {
        let archive = archive.with_context(|| format!("listing {}", archives.display()))?;
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(archive.path()).arg(&tree);
        progress::run_quietly("unpacking qemu", &mut unpack)?;
    }
    let complete = Unpacked { root: tree };
    let program = complete.file("usr/bin/qemu-system-x86_64");
    ensure!(
        paths::is_executable(&program),
        "unpacking qemu: there is no {} in what apt downloaded ({})",
        program.display(),
        packages.join(" ")
    );
    let place = cache.join("qemu");
    if place.exists() {
        fs::remove_dir_all(&place).with_context(|| format!("removing {}", place.display()))?;
    }
    fs::rename(&complete.root, &place)
        .with_context(|| format!("putting {} in place", place.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn it_is_found_where_it_is_unpacked_and_runs_with_what_is_beside_it() {
        let cache = tempfile::tempdir().unwrap();
        assert_eq!(Unpacked::find(cache.path()), None);
        let program = cache.path().join("qemu/usr/bin/qemu-system-x86_64");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, "").unwrap();
        assert_eq!(Unpacked::find(cache.path()), None, "it cannot be executed");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let found = Unpacked::find(cache.path()).unwrap();
        let root = cache.path().join("qemu").display().to_string();
        let [(_, libraries), (_, modules)] = found.environment();
        let libraries = libraries.into_string().unwrap();
        assert_eq!(
            libraries,
            format!("{root}/usr/lib/x86_64-linux-gnu:{root}/lib/x86_64-linux-gnu")
        );
        assert!(modules.into_string().unwrap().ends_with("-gnu/qemu"));
        assert_eq!(found.file("/usr/x"), Path::new(&root).join("usr/x"));
    }
}
