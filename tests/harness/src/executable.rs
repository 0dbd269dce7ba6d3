//! Finds the programs under test, and those that tests are made of.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use anyhow::{Context as _, Result, anyhow, bail};

/// Names the agent to test instead of the one that cargo builds. What else is needed is beside it.
pub const AGENT_VARIABLE: &str = "CULVERT_AGENT";

const AGENT: &str = "proxy-agent";
const POD: &str = "culvert-pod";

/// Where the programs are.
#[derive(Debug)]
struct Programs {
    agent: PathBuf,
    pod: PathBuf,
}

/// The `culvert-pod` program: of the same build as the agent. If that is named, the one beside
/// this program or above it, which built it with the agent.
pub fn pod() -> Result<&'static Path> {
    found().map(|programs| programs.pod.as_path())
}

/// The `proxy-agent` program: what `CULVERT_AGENT` names; else, under cargo, what cargo builds
/// now, so that it is never stale; else the one beside this program (in a virtual machine).
pub fn agent() -> Result<&'static Path> {
    found().map(|programs| programs.agent.as_path())
}

fn found() -> Result<&'static Programs> {
    static PROGRAMS: OnceLock<Result<Programs>> = OnceLock::new();
    match PROGRAMS.get_or_init(find) {
        Ok(programs) => Ok(programs),
        Err(error) => Err(anyhow!("{error:#}")),
    }
}

fn find() -> Result<Programs> {
    if let Some(agent) = env::var_os(AGENT_VARIABLE) {
        return Ok(Programs {
            agent: agent.into(),
            pod: beside(POD)?,
        });
    }
    match env::var_os("CARGO") {
        Some(cargo) => build(Path::new(&cargo)),
        None => Ok(Programs {
            agent: beside(AGENT)?,
            pod: beside(POD)?,
        }),
    }
}

fn build(cargo: &Path) -> Result<Programs> {
    // A package cannot ask cargo for another package's program (artifact dependencies are
    // unstable), so this asks again. It is quick when nothing changed. A test among what is built,
    // the smallest, stands for the features that tests ask for: dependencies are compiled once.
    let mut command = Command::new(cargo);
    command
        .args(["build", "--locked", "--bin", AGENT, "--bin", POD])
        .args(["--test", "dependencies"])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
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
        bail!("cannot build {AGENT} and {POD}: {command:?} failed");
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let built: Vec<PathBuf> = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .collect();
    let named = |name: &str| {
        let mut paths = built.iter();
        let path = paths.find(|path| path.file_name().is_some_and(|file| file == name));
        path.cloned()
            .ok_or_else(|| anyhow!("{command:?} made no {name}"))
    };
    Ok(Programs {
        agent: named(AGENT)?,
        pod: named(POD)?,
    })
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
