//! A brain under test: the real `proxy-agent brain`, on manifests that the test writes or behind
//! another brain.

use std::{
    fs,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::{EVERY_SYNC, LIMIT, LogLine, log::Log};
use crate::{executable, process::Process, world::World};

/// Free in the network namespace of every node under test.
const TCP: &str = "tcp://127.0.0.1:7070";

/// A place for one brain after another: manifests, and a socket on which they listen.
#[derive(Debug)]
pub struct BrainProcess<'w> {
    world: &'w World,
    directory: TempDir,
    source: Vec<String>,
    listen: Vec<String>,
    running: Option<(Process, Log)>,
}

impl<'w> BrainProcess<'w> {
    /// One that follows `target`, or the manifests of this place if there is none. It does not run
    /// yet.
    pub fn prepare(world: &'w World, target: Option<&str>) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("culvert-test-")
            .tempdir()
            .context("cannot make a directory for a brain")?;
        let manifests = directory.path().join("manifests");
        fs::create_dir(&manifests).context("cannot make a directory for manifests")?;
        let listen = format!("unix://{}", directory.path().join("api.sock").display());
        let source = match target {
            Some(target) => vec!["--target".to_owned(), target.to_owned()],
            None => vec!["--manifests".to_owned(), manifests.display().to_string()],
        };
        Ok(Self {
            world,
            directory,
            source,
            listen: vec!["--listen".to_owned(), listen],
            running: None,
        })
    }

    /// What clients are given as `--target`.
    pub fn target(&self) -> String {
        self.listen[1].clone()
    }

    /// Listens on `tcp://` of the node's loopback, and takes reports from who shows what is in
    /// `token`.
    pub fn listen_with_token(&mut self, token: &Path) {
        self.listen = ["--listen", TCP, "--listen-token-file"]
            .map(str::to_owned)
            .to_vec();
        self.listen.push(token.display().to_string());
    }

    /// Where it is asked.
    pub fn admin_socket(&self) -> PathBuf {
        self.directory.path().join("admin.sock")
    }

    /// Starts it for `node`, and waits until it listens.
    pub fn start(&mut self, node: &str) -> Result<()> {
        let mut command = Command::new(executable::agent()?);
        command
            .args([
                "brain",
                "--log-format=json",
                EVERY_SYNC,
                "--node-name",
                node,
            ])
            .args(["--healthz-bind-address=", "--metrics-bind-address="])
            .args(&self.listen)
            .arg("--admin-socket")
            .arg(self.admin_socket())
            .args(&self.source)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        // It tells which addresses the node has.
        crate::process::enter(&mut command, Some(self.world.node().netns().as_fd()), None)?;
        let mut process = Process::spawn("proxy-agent brain", command)?;
        let stderr = process.child().stderr.take();
        let log = Log::follow(stderr.context("the brain has no stderr")?);
        self.running = Some((process, log));
        self.wait_for("node API").map(drop)
    }

    /// What it says of itself and of its clients: `agent` in the JSON of `state`.
    pub fn facts(&self) -> Result<Value> {
        let mut command = Command::new(executable::agent()?);
        command
            .args(["state", "--output=json", "--admin-socket"])
            .arg(self.admin_socket());
        let done = Process::run("proxy-agent state", command, LIMIT)?;
        let mut state: Value =
            serde_json::from_str(&done.stdout).with_context(|| format!("{done:?}"))?;
        Ok(state["agent"].take())
    }

    /// Waits for the next line with this message.
    pub fn wait_for(&mut self, message: &str) -> Result<LogLine> {
        let (_, log) = self.running.as_mut().context("the brain is not running")?;
        log.wait_for(message, |line| line.message() == Some(message), LIMIT)
    }

    /// Writes the manifest, by rename, so that the brain never sees half of it.
    pub fn apply(&self, content: &str) -> Result<()> {
        let path = self.directory.path().join("manifests/cluster.yaml");
        let staged = self.directory.path().join("staged");
        fs::write(&staged, content)
            .and_then(|()| fs::rename(&staged, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Sends `SIGKILL` and waits for the end.
    pub fn kill(&mut self) -> Result<()> {
        let (mut process, _) = self.running.take().context("the brain is not running")?;
        process.signal(Signal::SIGKILL)?;
        process.wait(LIMIT).map(drop)
    }
}
