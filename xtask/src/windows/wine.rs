//! Running programs for Windows under wine, in a prefix of our own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use xtask::paths;

use crate::progress;

/// Where Debian has it, off the PATH.
const OFF_PATH: &str = "/usr/lib/wine/wine64";

/// How long one program may take, in seconds, the making of the prefix included: wine can hang
/// where a machine allows less than it expects.
const LIMIT: &str = "180";

/// A wine, and what it takes for drive C.
pub(crate) struct Wine {
    program: PathBuf,
    prefix: PathBuf,
}

/// Where the program is.
pub(crate) fn program() -> Option<PathBuf> {
    let off_path = || Some(PathBuf::from(OFF_PATH)).filter(|file| paths::is_executable(file));
    paths::find_on_path("wine64").or_else(off_path)
}

impl Wine {
    /// The wine of this machine, with a prefix of its own: nobody's own is touched.
    pub(super) fn find(prefix: &Path) -> Option<Self> {
        Some(Self {
            program: program()?,
            prefix: prefix.to_path_buf(),
        })
    }

    /// Makes the prefix, which takes ten seconds, unless it is there.
    pub(super) fn start(&self) -> Result<()> {
        // Written last.
        if self.prefix.join("system.reg").is_file() {
            return Ok(());
        }
        fs::create_dir_all(&self.prefix)
            .with_context(|| format!("making {}", self.prefix.display()))?;
        let mut boot = self.command(Path::new("wineboot"), &["--update".to_owned()]);
        progress::run_quietly("starting wine", &mut boot)
    }

    /// Runs a program for Windows with these arguments.
    pub(super) fn command(&self, program: &Path, arguments: &[String]) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", LIMIT])
            .arg(&self.program)
            .arg(program)
            .args(arguments)
            .env("WINEPREFIX", &self.prefix)
            .env("WINEDEBUG", "-all")
            // No offers to download what we do not use, and no entries in anybody's menus.
            .env("WINEDLLOVERRIDES", "mscoree,mshtml=;winemenubuilder.exe=d")
            .env_remove("DISPLAY")
            .env_remove("WAYLAND_DISPLAY");
        command
    }
}
