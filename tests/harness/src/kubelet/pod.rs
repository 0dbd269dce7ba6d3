//! A pod that runs.

use std::{
    io,
    os::fd::AsFd as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Container as Specified, PodSpec};
use nix::sys::signal::Signal;

use super::{Surroundings, host::HostFiles, probes::Question, setting, volumes::Volumes};
use crate::{
    agent::{LIMIT, Log, LogLine},
    cgroup::Cgroup,
    container::Container,
    process::{self, Process},
    world::World,
};

/// Between two questions of kubelet, which waits for seconds: tests have none to spare.
const BETWEEN_PROBES: Duration = Duration::from_millis(50);

/// A pod whose init containers are done. Its container is killed when this is dropped.
#[derive(Debug)]
pub struct Pod<'w> {
    world: &'w World,
    specified: Specified,
    container: Container,
    grace: Duration,
    process: Process,
    log: Log,
    /// Kept for as long as the process has them mounted.
    _volumes: Volumes,
    cgroup: Cgroup,
}

impl<'w> Pod<'w> {
    pub(super) fn start(
        world: &'w World,
        host: &HostFiles,
        spec: &PodSpec,
        image: &Path,
        around: &Surroundings,
    ) -> Result<Self> {
        ensure!(
            spec.host_network == Some(true),
            "the pod does not ask for the host's network"
        );
        let [specified] = spec.containers.as_slice() else {
            bail!("the pod has {} containers", spec.containers.len());
        };
        ensure!(
            specified.lifecycle.is_none(),
            "lifecycle hooks are not supported here"
        );
        let volumes = spec.volumes.as_deref().unwrap_or_default();
        let volumes = Volumes::of(volumes, host, around)?;
        let cgroup = world.cgroup().child("pod-culvert")?;
        let command_of = |one: &Specified| -> Result<(Container, Command)> {
            let (container, words) = setting::of(one, spec, image, &volumes, around)?;
            let launcher = container.launcher()?;
            let mut command = host.command(&launcher[0]);
            command.args(&launcher[1..]).args(words);
            let netns = world.node().netns().as_fd();
            process::enter(&mut command, Some(netns), Some(cgroup.as_fd()))?;
            Ok((container, command))
        };
        for one in spec.init_containers.iter().flatten() {
            let done = Process::run(&one.name, command_of(one)?.1, LIMIT)?;
            ensure!(
                done.code == Some(0),
                "the init container {} failed: {done:?}",
                one.name
            );
        }
        let (container, mut command) = command_of(specified)?;
        let (said_by_container, output) = io::pipe().context("cannot make a pipe")?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let process = Process::spawn(&specified.name, command)?;
        let grace = spec.termination_grace_period_seconds.unwrap_or(30);
        Ok(Self {
            world,
            specified: specified.clone(),
            container,
            grace: Duration::from_secs(grace.try_into()?),
            process,
            log: Log::follow(said_by_container),
            _volumes: volumes,
            cgroup,
        })
    }

    /// A program in the container, as `kubectl exec` starts it.
    pub fn command(&self, words: &[&str]) -> Result<Command> {
        let container = Container {
            beside: Some(self.process.pid().as_raw()),
            ..self.container.clone()
        };
        let launcher = container.launcher()?;
        let mut command = Command::new(&launcher[0]);
        command.args(&launcher[1..]).args(words);
        let netns = self.world.node().netns().as_fd();
        process::enter(&mut command, Some(netns), Some(self.cgroup.as_fd()))?;
        Ok(command)
    }

    /// All lines of the log so far.
    pub fn log(&self) -> Vec<LogLine> {
        self.log.so_far()
    }

    /// Waits for the next line with this message.
    pub fn wait_for(&mut self, message: &str) -> Result<LogLine> {
        self.log
            .wait_for(message, |line| line.message() == Some(message), LIMIT)
    }

    /// Waits for the next line that begins so: of a program that keeps no log.
    pub fn wait_for_words(&mut self, words: &str) -> Result<LogLine> {
        let begins = |line: &LogLine| line.raw.starts_with(words);
        self.log.wait_for(words, begins, LIMIT)
    }

    /// Asks as kubelet does until the pod has started and is ready. Each probe has the time that its
    /// specification allows.
    pub fn wait_until_ready(&self) -> Result<()> {
        let probes = [
            &self.specified.startup_probe,
            &self.specified.readiness_probe,
        ];
        for probe in probes.into_iter().flatten() {
            let question = Question::of(probe, &self.specified)?;
            let deadline = Instant::now() + question.budget;
            while let Err(why) = question.ask(self.world.node().netns()) {
                if Instant::now() > deadline {
                    bail!("{why}\nits log:\n{}", self.log.tail());
                }
                thread::sleep(BETWEEN_PROBES);
            }
        }
        Ok(())
    }

    /// What is wrong with the pod by its liveness and readiness probes, each asked once.
    pub fn is_well(&self) -> Result<(), String> {
        let probes = [
            &self.specified.liveness_probe,
            &self.specified.readiness_probe,
        ];
        probes.into_iter().flatten().try_for_each(|probe| {
            let question = Question::of(probe, &self.specified);
            let question = question.map_err(|error| format!("{error:#}"))?;
            question.ask(self.world.node().netns())
        })
    }

    /// Ends it as kubelet does: by SIGTERM, within its grace period and well.
    pub fn terminate(mut self) -> Result<Vec<LogLine>> {
        self.process.signal(Signal::SIGTERM)?;
        let status = self.process.wait(self.grace);
        let status = status.with_context(|| format!("its log:\n{}", self.log.tail()))?;
        ensure!(
            status.success(),
            "the pod ended with {status}\n{}",
            self.log.tail()
        );
        self.log.wait_for_end();
        Ok(self.log.so_far())
    }
}
