//! Finds the programs under test.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use anyhow::{Context as _, Result, anyhow, bail};

/// Names the agent to test instead of the one that cargo builds.
pub const AGENT_VARIABLE: &str = "CULVERT_AGENT";

/// The `culvert-pod` program. Cargo builds it beside every test of this package.
pub fn pod() -> Result<PathBuf> {
    beside("culvert-pod")
}

/// The `proxy-agent` program: what `CULVERT_AGENT` names; else, under cargo, what cargo builds
/// now, so that it is never stale; else the one beside this program (in a virtual machine).
pub fn agent() -> Result<&'static Path> {
    static AGENT: OnceLock<Result<PathBuf>> = OnceLock::new();
    match AGENT.get_or_init(find_agent) {
        Ok(path) => Ok(path),
        Err(error) => Err(anyhow!("{error:#}")),
    }
}

fn find_agent() -> Result<PathBuf> {
    if let Some(path) = env::var_os(AGENT_VARIABLE) {
        return Ok(path.into());
    }
    match env::var_os("CARGO") {
        Some(cargo) => build_agent(Path::new(&cargo)),
        None => beside("proxy-agent"),
    }
}

fn build_agent(cargo: &Path) -> Result<PathBuf> {
    // A package cannot ask cargo for another package's program (artifact dependencies are
    // unstable), so this asks again. It is quick when nothing changed.
    let mut command = Command::new(cargo);
    command
        .args(["build", "--package", "proxy-agent", "--bin", "proxy-agent"])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        // Tests that need the agent need its kernel programs, whatever the outer build skipped.
        .env_remove("CULVERT_SKIP_EBPF")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    if env::current_exe()?
        .components()
        .any(|part| part.as_os_str() == "release")
    {
        command.arg("--release");
    }
    let output = command
        .output()
        .with_context(|| format!("cannot run {}", cargo.display()))?;
    if !output.status.success() {
        bail!("cannot build proxy-agent: {command:?} failed");
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .next_back()
        .ok_or_else(|| anyhow!("{command:?} named no executable"))
}

/// A program in the directory of this one, or in its parent (`target/debug/deps/..`).
fn beside(name: &str) -> Result<PathBuf> {
    let own = env::current_exe().context("cannot find this program's own path")?;
    own.ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| anyhow!("there is no {name} beside {}", own.display()))
}
