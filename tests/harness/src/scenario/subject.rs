//! What a scenario is run against: the agent as a whole, or a backend behind the node API.

use std::{
    fmt::Write as _,
    fs,
    net::Ipv4Addr,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;
use proxy_api::server::ClientStatus;
use proxy_model::{Capability, NodeState};

use super::{Scenario, Step};
use crate::{
    agent::{Agent, AgentOptions, LIMIT},
    brain::Brain,
    process::{self, Process},
    world::World,
};

/// What is to be tested.
#[derive(Debug, Clone)]
pub enum Under {
    /// The agent, on manifests: its own brain included.
    Agent,
    /// The agent behind the node API (`run --target`), with arguments that choose one backend alone.
    OurBackend(Start),
    /// The agent behind the node API with socket hooks over a packet backend, and no programs on devices.
    Layers(Start),
    /// The agent as it is by default: the same, with programs on the devices of a
    /// [`journey`](crate::journey) that clients outside come in by, whatever they bypass.
    Devices,
    /// The same, where endpoints on the node see clients (`--keep-client-address`).
    DevicesKeeping,
    /// As [`Under::Devices`] without a packet backend: the backend of this name alone.
    DevicesAlone(&'static str),
    /// Any program that is a backend behind the node API. Its words, in which `{target}` and
    /// `{cgroup}` stand for the brain's address and the directory of the node's cgroup.
    Command(Vec<String>),
}

/// How the agent is started.
#[derive(Debug, Clone)]
pub struct Start {
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Which `iptables-restore` of each family runs before it in the node's network, as those of others on a node do,
    /// and what these are given: an agent may not load the modules of their tables.
    pub before: Option<([&'static str; 2], &'static str)>,
    /// The node lets packets from loopback addresses leave, as `route_localnet` says, where NodePorts answer there.
    pub routes_localnet: bool,
    /// What all its layers lack.
    pub lacks: &'static [Capability],
}

impl Start {
    /// With these arguments, on a node where nothing else is.
    pub fn with(arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            arguments: arguments.into_iter().map(Into::into).collect(),
            before: None,
            routes_localnet: false,
            lacks: &[],
        }
    }

    /// The same on a node where the `iptables-restore` of each family has been given that.
    #[must_use]
    pub fn after(self, programs: [&'static str; 2], input: &'static str) -> Self {
        Self {
            before: Some((programs, input)),
            ..self
        }
    }

    /// The same on a node that lets packets from loopback addresses leave.
    #[must_use]
    pub fn routing_localnet(self) -> Self {
        Self {
            routes_localnet: true,
            ..self
        }
    }

    /// The same, and nothing but this is lacking.
    #[must_use]
    pub fn lacking(self, lacks: &'static [Capability]) -> Self {
        Self { lacks, ..self }
    }
}

impl Under {
    /// Whether there are two layers.
    pub fn is_layered(&self) -> bool {
        matches!(self, Self::Layers(_) | Self::Devices | Self::DevicesKeeping)
    }

    /// How the agent is started, if it is the agent behind the node API.
    pub fn start(&self) -> Start {
        let devices = ["--proxy-mode=auto", "--tc=on", OUTSIDE];
        match self {
            Self::OurBackend(start) | Self::Layers(start) => start.clone(),
            Self::Devices => Start::with(devices),
            Self::DevicesKeeping => {
                Start::with(devices.into_iter().chain(["--keep-client-address"]))
            }
            Self::DevicesAlone(name) => {
                let alone = format!("--backend-order={name}");
                Start::with(devices.map(ToOwned::to_owned).into_iter().chain([alone]))
            }
            Self::Agent | Self::Command(_) => Start::with([""; 0]),
        }
    }

    /// Whether there are programs on devices.
    pub fn has_devices(&self) -> bool {
        matches!(
            self,
            Self::Devices | Self::DevicesKeeping | Self::DevicesAlone(_)
        )
    }
}

/// One that runs.
#[derive(Debug)]
pub enum Subject<'w> {
    /// The agent, on manifests.
    Agent(Agent<'w>),
    /// The agent, behind a brain of the test.
    OurBackend(Agent<'w>, Brain),
    /// Another program, behind a brain of the test.
    Command(Process, Brain),
}

/// By which clients outside come in, and all that packets are told apart by, unless pods are behind it.
const OUTSIDE: &str = "--devices=uplink,wan*,eth*,cbr*,veth*";

const MANIFEST: &str = "cluster.yaml";

/// The number of a step that no scenario gets to.
const REST: usize = 255;

impl<'w> Subject<'w> {
    /// Starts it with the first step of `scenario`, which leads to `state`.
    pub fn start(
        under: &Under,
        world: &'w World,
        scenario: &Scenario,
        state: &NodeState,
    ) -> Result<Self> {
        let node = &scenario.settings.model.node;
        match under {
            Under::Agent => {
                let first = manifest(&scenario.steps[0], 0);
                let options = AgentOptions {
                    node_name: node.to_string(),
                    arguments: scenario.settings.arguments(),
                    ..AgentOptions::default()
                };
                Agent::start(world, options, &[(MANIFEST, &first)]).map(Self::Agent)
            }
            other => Self::behind_brain(other, world, node, state),
        }
    }

    /// Starts it behind a brain that has published `state`, of the node called `node`.
    pub fn behind_brain(
        under: &Under,
        world: &'w World,
        node: &str,
        state: &NodeState,
    ) -> Result<Self> {
        match under {
            Under::Agent => bail!("the agent on manifests is its own brain"),
            Under::OurBackend(_)
            | Under::Layers(_)
            | Under::Devices
            | Under::DevicesKeeping
            | Under::DevicesAlone(_) => {
                let start = under.start();
                // Who sets it without need sees to it that neighbours reach nothing by it.
                let mut answers = state.node_port_addresses.iter();
                if start.routes_localnet && answers.any(|one| *one == Ipv4Addr::LOCALHOST) {
                    let sysctl = "/proc/sys/net/ipv4/conf/all/route_localnet";
                    let set = world.node().netns().run(|| fs::write(sysctl, "1"))?;
                    set.with_context(|| format!("cannot set {sysctl}"))?;
                }
                if let Some((programs, input)) = start.before {
                    for program in programs {
                        world.node().netns().feed(&[program, "--noflush"], input)?;
                    }
                }
                let brain = Brain::start()?;
                brain.publish(state);
                let options = AgentOptions {
                    node_name: node.to_owned(),
                    source: vec!["--target".to_owned(), brain.target().to_owned()],
                    arguments: start.arguments.clone(),
                    ..AgentOptions::default()
                };
                let agent = Agent::start(world, options, &[])?;
                in_force(&brain)?;
                if let Some(([program, _], _)) = start.before {
                    let log = agent.log();
                    let mut flavours = log.iter().filter_map(|line| line.text("flavour"));
                    if !flavours.any(|flavour| program.contains(flavour)) {
                        bail!("the agent does not use {program}; its log:\n{log:?}");
                    }
                }
                // Mode auto goes on with what it can use: that would be another test.
                let layers = agent.layers()?;
                let wanted = if under.is_layered() { 2 } else { 1 };
                if layers.len() != wanted {
                    bail!("the agent chose {layers:?}, where {wanted} of them are to be tested");
                }
                Ok(Self::OurBackend(agent, brain))
            }
            Under::Command(words) => {
                let brain = Brain::start()?;
                brain.publish(state);
                let process = Process::spawn("the backend", command(words, world, &brain)?)?;
                in_force(&brain)?;
                Ok(Self::Command(process, brain))
            }
        }
    }

    /// Brings a later step into force.
    pub fn advance(&mut self, index: usize, step: &Step, state: &NodeState) -> Result<()> {
        match self {
            Self::Agent(agent) => agent
                .apply_and_sync(MANIFEST, &manifest(step, index))
                .map(drop),
            Self::OurBackend(..) | Self::Command(..) => self.follow(state),
        }
    }

    /// Brings an empty cluster into force, of the agent on manifests.
    pub(super) fn rest(&mut self) -> Result<()> {
        match self {
            Self::Agent(agent) => agent
                .apply_and_sync(MANIFEST, &manifest(&Step::default(), REST))
                .map(drop),
            Self::OurBackend(..) | Self::Command(..) => bail!("its brain says what there is"),
        }
    }

    /// Publishes another state to what is behind a brain, and waits until it is in force.
    pub fn follow(&mut self, state: &NodeState) -> Result<()> {
        match self {
            Self::Agent(_) => bail!("the agent on manifests is its own brain"),
            Self::OurBackend(_, brain) | Self::Command(_, brain) => {
                brain.publish(state);
                in_force(brain).map(drop)
            }
        }
    }

    /// Puts another brain with the same state in the place of the one that it follows, which must
    /// disturb nothing.
    pub fn replace_brain(self, state: &NodeState) -> Result<Self> {
        let replaced = |brain: Brain| -> Result<Brain> {
            let brain = brain.replaced()?;
            brain.publish(state);
            in_force(&brain)?;
            Ok(brain)
        };
        Ok(match self {
            Self::Agent(_) => self,
            Self::OurBackend(agent, brain) => Self::OurBackend(agent, replaced(brain)?),
            Self::Command(process, brain) => Self::Command(process, replaced(brain)?),
        })
    }

    /// What it cannot do of what probes expect.
    pub fn lacks(&self) -> Result<Vec<Capability>> {
        match self {
            // Scenarios are written for it, what it lacks included.
            Self::Agent(_) | Self::OurBackend(..) => Ok(vec![]),
            Self::Command(..) => self.reported(),
        }
    }

    /// What it says to its brain that it cannot do.
    pub fn reported(&self) -> Result<Vec<Capability>> {
        match self {
            Self::Agent(_) => bail!("the agent on manifests reports to nobody"),
            Self::OurBackend(_, brain) | Self::Command(_, brain) => {
                Ok(brain.until_applied()?.lacks)
            }
        }
    }

    /// The errors of which a refused `connect` gives one: on kernels before 6.1, socket hooks cannot
    /// choose.
    pub fn refusals(&self) -> Result<Vec<String>> {
        match self {
            Self::Agent(agent) | Self::OurBackend(agent, _) => {
                Ok(vec![agent.refusal()?.to_owned()])
            }
            Self::Command(..) => Ok(vec!["ECONNREFUSED".to_owned(), "EPERM".to_owned()]),
        }
    }

    /// What it logged.
    pub fn log(&self) -> String {
        match self {
            Self::Agent(agent) | Self::OurBackend(agent, _) => {
                let lines = agent.log().into_iter().map(|line| line.raw);
                lines.collect::<Vec<_>>().join("\n")
            }
            Self::Command(..) => "(on standard error)".to_owned(),
        }
    }

    /// Ends it as a user would.
    pub fn finish(self) -> Result<()> {
        match self {
            Self::Agent(mut agent) | Self::OurBackend(mut agent, _) => agent.terminate().map(drop),
            Self::Command(mut process, _brain) => {
                process.signal(Signal::SIGTERM)?;
                let status = process.wait(LIMIT)?;
                if !status.success() {
                    bail!("the backend ended with {status} after SIGTERM");
                }
                Ok(())
            }
        }
    }
}

/// Waits until the newest state is in force, all of it.
fn in_force(brain: &Brain) -> Result<ClientStatus> {
    let client = brain.until_applied()?;
    if let Some(failure) = client.failures.first() {
        bail!("the backend could not program {failure}");
    }
    Ok(client)
}

fn command(words: &[String], world: &World, brain: &Brain) -> Result<Command> {
    let cgroup = world.cgroup().path().display().to_string();
    let fill = |word: &String| {
        word.replace("{target}", brain.target())
            .replace("{cgroup}", &cgroup)
    };
    let mut words = words.iter().map(fill);
    let program = words.next().context("a command needs a program")?;
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null());
    let netns = std::os::fd::AsFd::as_fd(world.node().netns());
    process::enter(&mut command, Some(netns), None)?;
    Ok(command)
}

/// All files of a step in one, so that the agent takes them over at once. A Service without
/// endpoints that is another one in each step makes sure that each step changes something.
fn manifest(step: &Step, index: usize) -> String {
    let mut text = String::new();
    for content in step.files.values() {
        writeln!(text, "{}\n---", content.trim_end()).expect("writing to a String cannot fail");
    }
    text + &format!(
        "apiVersion: v1\n\
         kind: Service\n\
         metadata: {{name: step-{index}, namespace: scenario-step}}\n\
         spec: {{clusterIP: 10.111.0.{index}, clusterIPs: [10.111.0.{index}], ports: [{{port: 1}}]}}\n"
    )
}
