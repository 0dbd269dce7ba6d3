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

/// How long wine's server stays without a program to serve, in seconds, should this process be
/// killed.
const SERVER_STAYS: &str = "-p60";

/// A wine, and what it takes for drive C.
pub(crate) struct Wine {
    program: PathBuf,
    prefix: PathBuf,
}

/// Wine's server, which ends with this value. Left to itself it goes three seconds after the last
/// program, and a program that is started while it goes is killed: exit code 1, not a word.
pub(super) struct Server<'a>(&'a Wine);

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

    /// Starts the server, and makes the prefix unless it is there, which takes ten seconds.
    pub(super) fn start(&self) -> Result<Server<'_>> {
        fs::create_dir_all(&self.prefix)
            .with_context(|| format!("making {}", self.prefix.display()))?;
        // One that is about to go would not become one that stays.
        self.server("-k").status().ok();
        progress::run(&mut self.server(SERVER_STAYS))?;
        let server = Server(self);
        // Written last.
        if !self.prefix.join("system.reg").is_file() {
            let mut boot = self.command(Path::new("wineboot"), &["--update".to_owned()]);
            progress::run_quietly("starting wine", &mut boot)?;
        }
        Ok(server)
    }

    /// Asks something of the server. It is installed beside the program.
    fn server(&self, what: &str) -> Command {
        let mut command = Command::new(self.program.with_file_name("wineserver"));
        command.arg(what).env("WINEPREFIX", &self.prefix);
        command
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
            // What it cannot do is worth a line; what it has not got is not.
            .env("WINEDEBUG", "fixme-all")
            // No offers to download what we do not use, and no entries in anybody's menus.
            .env("WINEDLLOVERRIDES", "mscoree,mshtml=;winemenubuilder.exe=d")
            .env_remove("DISPLAY")
            .env_remove("WAYLAND_DISPLAY");
        command
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        self.0.server("-k").status().ok();
    }
}
