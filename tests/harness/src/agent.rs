//! The agent under test: the real `proxy-agent`, driven as an operator would.
//!
//! Knows its command line and its log messages, which are interfaces; never its code. Events are
//! awaited in the log, so nothing here sleeps.

mod admin_directory;
mod brain_process;
mod log;
mod rights;

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::{
    bpffs::PinDir,
    executable,
    process::{Finished, Process},
    world::World,
};
pub use admin_directory::AdminDirectory;
pub use brain_process::BrainProcess;
pub(crate) use log::Log;
pub use log::LogLine;
pub use rights::{Rights, for_programs};

/// How long the agent may take for anything. Far above what it needs, because other tests run at
/// the same time, perhaps in a virtual machine without hardware support.
pub const LIMIT: Duration = Duration::from_mins(3);
/// What tests wait for is told by each sync.
const EVERY_SYNC: &str = "--log-level=info,proxy_agent::pipeline=debug";

/// How to run an agent.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// `--node-name`.
    pub node_name: String,
    /// `--cgroup-path`, if not the world's cgroup.
    pub cgroup_path: Option<PathBuf>,
    /// Arguments that name another source of cluster objects (`--master …`). Empty for the
    /// manifests that the test writes.
    pub source: Vec<String>,
    /// Further arguments of `run`. Without `--proxy-mode` or `--config` among them, socket hooks serve alone:
    /// what a test is about must not depend on what its Services need.
    pub arguments: Vec<String>,
    /// Whether every sync is told. Without it, and without `--log-level`, the configuration decides what is
    /// logged.
    pub tells_syncs: bool,
    /// A command that is given the agent's command line to execute, to start it in unusual
    /// surroundings: with all rights. Empty for none.
    pub launcher: Vec<String>,
    /// What it may do.
    pub rights: Rights,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            node_name: "node-a".to_owned(),
            cgroup_path: None,
            source: Vec::new(),
            arguments: Vec::new(),
            tells_syncs: true,
            launcher: Vec::new(),
            rights: Rights::default(),
        }
    }
}

/// An agent with a manifest directory and a pin directory of its own, attached to a world's
/// cgroup. Dropping it kills it, runs `proxy-agent cleanup` and checks that nothing is left.
#[derive(Debug)]
pub struct Agent<'w> {
    world: &'w World,
    options: AgentOptions,
    manifests: TempDir,
    pins: PinDir,
    admin_directory: AdminDirectory,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    process: Process,
    log: Log,
    serving: Option<LogLine>,
}

impl<'w> Agent<'w> {
    /// Writes `files` (name and content), starts an agent on them and waits until it serves.
    pub fn start(world: &'w World, options: AgentOptions, files: &[(&str, &str)]) -> Result<Self> {
        let mut agent = Self::prepare(world, options, files)?;
        agent.launch()?;
        Ok(agent)
    }

    /// Like [`Agent::start`], but does not start it.
    pub fn prepare(
        world: &'w World,
        options: AgentOptions,
        files: &[(&str, &str)],
    ) -> Result<Self> {
        let manifests = tempfile::Builder::new()
            .prefix("culvert-test-")
            .tempdir()
            .context("cannot make a directory for manifests")?;
        let agent = Self {
            world,
            options,
            manifests,
            pins: PinDir::new()?,
            admin_directory: AdminDirectory::keep()?,
            running: None,
        };
        for (name, content) in files {
            agent.apply(name, content)?;
        }
        Ok(agent)
    }

    /// Starts the agent and waits until it serves. It must not be running.
    pub fn launch(&mut self) -> Result<&LogLine> {
        self.spawn()?;
        let serving = self.wait_until_served()?;
        let running = self
            .running
            .as_mut()
            .context("the agent has just been started")?;
        Ok(running.serving.insert(serving))
    }

    /// Waits until every layer serves: the first that decides is the last to begin.
    pub fn wait_until_served(&mut self) -> Result<LogLine> {
        loop {
            let serving = self.wait_for("serving")?;
            if serving.text("backend") == self.first_layer()?.as_deref() {
                return Ok(serving);
            }
        }
    }

    /// The layers that the agent chose, by the names of their backends, the first that decides first:
    /// as the log says.
    pub fn layers(&self) -> Result<Vec<String>> {
        let log = self.log();
        let mut chosen = log.iter().rev();
        let chosen = chosen.find(|line| line.message() == Some("backend chosen"));
        let layers = chosen.and_then(|line| line.text("backend"));
        let layers = layers.context("an agent says what it chose before it serves")?;
        Ok(layers.split(" over ").map(str::to_owned).collect())
    }

    fn first_layer(&self) -> Result<Option<String>> {
        Ok(self.layers()?.into_iter().next())
    }

    fn mode(&self) -> &'static [&'static str] {
        let chosen = |argument: &String| {
            argument.starts_with("--proxy-mode") || argument.starts_with("--config")
        };
        let chosen = self.options.arguments.iter().any(chosen);
        if chosen {
            &[]
        } else {
            &["--proxy-mode=ebpf", "--backend-order=ebpf", "--tc=off"]
        }
    }

    /// Starts the agent and does not wait.
    pub fn spawn(&mut self) -> Result<()> {
        if self.running.is_some() {
            bail!("the agent is already running");
        }
        let mut command = self.program()?;
        command
            .arg("run")
            .arg("--pin-dir")
            .arg(self.pins.path())
            .arg("--cgroup-path")
            .arg(
                self.options
                    .cgroup_path
                    .as_deref()
                    .unwrap_or(self.world.cgroup().path()),
            )
            .args(["--node-name", &self.options.node_name])
            .args(["--log-format", "json"])
            .args(&self.options.source)
            .args(self.mode())
            .args(self.log_level())
            .args(&self.options.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if self.options.source.is_empty() {
            command.arg("--manifests").arg(self.manifests.path());
        }
        // The agent is not in the node's cgroup: its own sockets are none of its business.
        crate::process::enter(
            &mut command,
            Some(std::os::fd::AsFd::as_fd(self.world.node().netns())),
            None,
        )?;
        let mut process = Process::spawn("proxy-agent", command)?;
        let stderr = process
            .child()
            .stderr
            .take()
            .context("the agent has no stderr")?;
        self.running = Some(Running {
            process,
            log: Log::follow(stderr),
            serving: None,
        });
        Ok(())
    }

    /// The agent, where and with the rights that are wanted, to add arguments to.
    fn program(&self) -> Result<Command> {
        let options = &self.options;
        let rights = options
            .rights
            .launcher(&options.arguments, &self.admin_directory)?;
        let launcher = self.options.launcher.iter().map(OsString::from);
        let mut words = launcher.chain(rights);
        let agent = self.options.rights.agent()?;
        let Some(first) = words.next() else {
            return Ok(Command::new(agent));
        };
        let mut command = Command::new(first);
        command.args(words).arg(agent);
        Ok(command)
    }

    /// Every sync is told, unless the test wants another log.
    fn log_level(&self) -> Option<&'static str> {
        let mut arguments = self.options.source.iter().chain(&self.options.arguments);
        let given = arguments.any(|one| one.starts_with("--log-level"));
        (self.options.tells_syncs && !given).then_some(EVERY_SYNC)
    }

    /// `proxy-agent SUBCOMMAND --pin-dir …`, to add to and to run.
    pub fn command(&self, subcommand: &str) -> Result<Command> {
        let mut command = Command::new(executable::agent()?);
        command
            .arg(subcommand)
            .arg("--pin-dir")
            .arg(self.pins.path());
        Ok(command)
    }

    /// What the agent said when it began to serve.
    pub fn serving(&self) -> Result<&LogLine> {
        self.running
            .as_ref()
            .and_then(|running| running.serving.as_ref())
            .ok_or_else(|| anyhow!("the agent is not serving"))
    }

    /// What a refused `connect` gives on this kernel: `ECONNREFUSED`, or `EPERM` before 6.1.
    pub fn refusal(&self) -> Result<&str> {
        self.serving()?
            .text("refusal")
            .context("\"serving\" has no field \"refusal\"")
    }

    /// Waits for the next line with this message. Lines before it are passed over for good.
    pub fn wait_for(&mut self, message: &str) -> Result<LogLine> {
        let running = self.running.as_mut().context("the agent is not running")?;
        running
            .log
            .wait_for(message, |line| line.message() == Some(message), LIMIT)
    }

    /// Waits for the next line that `wanted` accepts; `what` is what messages call it.
    pub fn wait_for_line(
        &mut self,
        what: &str,
        wanted: impl Fn(&LogLine) -> bool,
    ) -> Result<LogLine> {
        let running = self.running.as_mut().context("the agent is not running")?;
        running.log.wait_for(what, wanted, LIMIT)
    }

    /// All lines so far of the agent that is running.
    pub fn log(&self) -> Vec<LogLine> {
        self.running
            .as_ref()
            .map(|running| running.log.so_far())
            .unwrap_or_default()
    }

    /// Writes a manifest, by rename, so that the agent never sees half of it.
    pub fn apply(&self, name: &str, content: &str) -> Result<()> {
        let path = self.manifest(name);
        let staged = self.manifests.path().join(format!(".{name}.new"));
        fs::write(&staged, content)
            .and_then(|()| fs::rename(&staged, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Writes a manifest and waits until the change is in force.
    pub fn apply_and_sync(&mut self, name: &str, content: &str) -> Result<LogLine> {
        self.apply(name, content)?;
        self.wait_until_synced()
    }

    /// Waits until a change is in force in every layer.
    pub fn wait_until_synced(&mut self) -> Result<LogLine> {
        let first = self.first_layer()?;
        self.wait_for_line("synced", |line| {
            line.message() == Some("synced") && line.text("layer") == first.as_deref()
        })
    }

    /// Deletes a manifest.
    pub fn delete(&self, name: &str) -> Result<()> {
        let path = self.manifest(name);
        fs::remove_file(&path).with_context(|| format!("cannot delete {}", path.display()))
    }

    /// Where the manifest called `name` is.
    pub fn manifest(&self, name: &str) -> PathBuf {
        self.manifests.path().join(name)
    }

    /// The pin directory.
    pub fn pins(&self) -> &PinDir {
        &self.pins
    }

    /// The agent's process id.
    pub fn pid(&self) -> Option<i32> {
        self.running
            .as_ref()
            .map(|running| running.process.pid().as_raw())
    }

    /// What the next start uses.
    pub fn options(&mut self) -> &mut AgentOptions {
        &mut self.options
    }

    /// Makes the next start attach to another world.
    pub fn move_to(&mut self, world: &'w World) {
        self.world = world;
    }

    /// Sends `SIGTERM` and waits for the end; the exit code must be 0. All that the agent said.
    pub fn terminate(&mut self) -> Result<Vec<LogLine>> {
        let mut running = self.running.take().context("the agent is not running")?;
        running.process.signal(Signal::SIGTERM)?;
        let status = running.process.wait(LIMIT)?;
        if !status.success() {
            bail!(
                "the agent ended with {status} after SIGTERM\n{}",
                running.log.tail()
            );
        }
        running.log.wait_for_end();
        Ok(running.log.so_far())
    }

    /// Sends `SIGKILL` and waits for the end.
    pub fn kill(&mut self) -> Result<()> {
        let mut running = self.running.take().context("the agent is not running")?;
        running.process.signal(Signal::SIGKILL)?;
        running.process.wait(LIMIT).map(drop)
    }

    /// Waits until the agent ends by itself and gives its exit code and all it said.
    pub fn wait_for_exit(&mut self) -> Result<(Option<i32>, Vec<LogLine>)> {
        let mut running = self.running.take().context("the agent is not running")?;
        let status = running
            .process
            .wait(LIMIT)
            .with_context(|| format!("its log:\n{}", running.log.tail()))?;
        running.log.wait_for_end();
        Ok((status.code(), running.log.so_far()))
    }

    /// Runs `proxy-agent cleanup`, whatever comes of it.
    pub fn cleanup_run(&self) -> Result<Finished> {
        let mut command = self.command("cleanup")?;
        // Where it ran: what it made may be of that network namespace.
        let netns = std::os::fd::AsFd::as_fd(self.world.node().netns());
        crate::process::enter(&mut command, Some(netns), None)?;
        Process::run("proxy-agent cleanup", command, LIMIT)
    }

    /// Runs `proxy-agent cleanup`; it must succeed and leave no pin.
    pub fn cleanup(&self) -> Result<()> {
        let done = self.cleanup_run()?;
        if done.code != Some(0) {
            bail!(
                "proxy-agent cleanup ended with {:?}: {}",
                done.code,
                done.stderr
            );
        }
        let left = self.pins.entries();
        if left.is_empty() && !self.pins.path().exists() {
            return Ok(());
        }
        bail!(
            "proxy-agent cleanup left {} with {left:?}",
            self.pins.path().display()
        )
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        // Killed and reaped by its own drop.
        self.running = None;
        if let Err(error) = self.cleanup() {
            if thread::panicking() {
                eprintln!("{error:#}");
            } else {
                panic!("{error:#}");
            }
        }
    }
}

/// Runs `proxy-agent ARGUMENTS…` in this program's own namespace to its end.
pub fn run<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Result<Finished> {
    let mut command = Command::new(executable::agent()?);
    command.args(arguments);
    Process::run("proxy-agent", command, LIMIT)
}

/// The path of the agent under test.
pub fn path() -> Result<&'static Path> {
    executable::agent()
}
