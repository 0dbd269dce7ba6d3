//! Where everything is measured: one node with a sender, one pod with all endpoints, and
//! cgroups, one for each agent, between which the sender moves.
//!
//! ```text
//!  cgroup      nothing attached | agent, 10 Services | agent, 10,000 Services | an empty program
//!                        └─────────────┴── sender ──────┴────────────────┘
//!  network     node ── br0 ── eth0 of the pod with the endpoints
//! ```
//! So whatever is compared was sent by the same process, over the same wire, to the same
//! servers, within a few milliseconds.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::{ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use super::{
    clusters::{self, Kind},
    sizes::{SMALL, Size},
    task::{Slice, Task},
    worker::{self, Order, Report},
};
use proxy_harness::{Agent, AgentOptions, World, cgroup::Cgroup, process::Process, world::Host};

/// The sender and what it is surrounded by. Dropped in the order of its fields.
#[derive(Debug)]
pub(super) struct Rig<'w> {
    sender: Sender,
    _answering: Process,
    _pod: Host,
    pub(super) small: Agent<'w>,
    pub(super) large: Agent<'w>,
    pub(super) cgroups: Cgroups,
    size: Size,
}

/// The cgroups that the sender moves between.
#[derive(Debug)]
pub(super) struct Cgroups {
    bare: Cgroup,
    pub(super) empty: Cgroup,
    small: Cgroup,
    large: Cgroup,
}

/// Where the sender is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// No program is attached.
    Bare,
    /// A program that does nothing is attached.
    Empty,
    /// Under the agent with [`SMALL`] Services.
    Small,
    /// Under the agent with many Services.
    Large,
}

/// What is dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialled {
    /// The endpoints themselves, in turn.
    Endpoints(Kind),
    /// The first Services of their kind, as many as the small agent has, in turn.
    Few(Kind),
    /// All Services of their kind, in turn.
    All(Kind),
}

impl Dialled {
    fn name(self) -> String {
        format!("{self:?}")
    }

    /// Where to, if the large agent has so many Services.
    fn targets(self, large: Size) -> Vec<SocketAddr> {
        let services = |kind, size: Size| {
            (0..size.0)
                .filter(|number| Kind::of(*number) == kind)
                .map(clusters::frontend)
                .collect()
        };
        match self {
            Self::Endpoints(kind) => kind.endpoints(),
            Self::Few(kind) => services(kind, SMALL),
            Self::All(kind) => services(kind, large),
        }
    }
}

/// The process that sends.
#[derive(Debug)]
pub(super) struct Sender {
    process: Process,
    orders: ChildStdin,
    reports: BufReader<ChildStdout>,
    /// The cgroup that it is in.
    place: PathBuf,
    known: Vec<String>,
}

impl<'w> Rig<'w> {
    /// Builds it in `world`, which must be reachable by every Service's endpoints. The two agents
    /// serve [`SMALL`] and `size` Services.
    pub(super) fn build(world: &'w World, size: Size) -> Result<Self> {
        let pod = endpoints(world)?;
        let answering = start_answering(&pod)?;
        let cgroups = Cgroups {
            bare: world.cgroup().sibling()?,
            empty: world.cgroup().sibling()?,
            small: world.cgroup().sibling()?,
            large: world.cgroup().sibling()?,
        };
        let agent = |cgroup: &Cgroup, size: Size| {
            let options = AgentOptions {
                cgroup_path: Some(cgroup.path().to_owned()),
                ..AgentOptions::default()
            };
            let manifest = clusters::manifest(0..size.0);
            Agent::start(world, options, &[("services.json", &manifest)])
        };
        Ok(Self {
            sender: Sender::start(world.node())?,
            _answering: answering,
            _pod: pod,
            small: agent(&cgroups.small, SMALL)?,
            large: agent(&cgroups.large, size)?,
            cgroups,
            size,
        })
    }

    /// Sends for about `length`; an error if a single request fails.
    pub(super) fn run(
        &mut self,
        place: Place,
        task: Task,
        dialled: Dialled,
        length: Duration,
    ) -> Result<Slice> {
        let sender = &mut self.sender;
        sender.enter(match place {
            Place::Bare => &self.cgroups.bare,
            Place::Empty => &self.cgroups.empty,
            Place::Small => &self.cgroups.small,
            Place::Large => &self.cgroups.large,
        })?;
        let targets = dialled.name();
        if !sender.known.contains(&targets) {
            sender.order(&Order::Targets {
                name: targets.clone(),
                to: dialled.targets(self.size),
            })?;
            sender.known.push(targets.clone());
        }
        let slice = sender.slice(task, &targets, length);
        slice.with_context(|| format!("{place:?}, {task}, {dialled:?}"))
    }
}

impl Sender {
    /// Starts it in no cgroup of a bench yet.
    pub(super) fn start(node: &Host) -> Result<Self> {
        let mut command = own_program("send")?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = node.spawn(command)?;
        let orders = process
            .child()
            .stdin
            .take()
            .context("the sender has no stdin")?;
        let reports = process
            .child()
            .stdout
            .take()
            .context("the sender has no stdout")?;
        Ok(Self {
            process,
            orders,
            reports: BufReader::new(reports),
            place: PathBuf::new(),
            known: Vec::new(),
        })
    }

    /// Moves it into `cgroup`: what it opens from now on is of there.
    pub(super) fn enter(&mut self, cgroup: &Cgroup) -> Result<()> {
        if self.place != cgroup.path() {
            let procs = cgroup.path().join("cgroup.procs");
            fs::write(&procs, self.process.pid().to_string())
                .with_context(|| format!("cannot move the sender into {}", procs.display()))?;
            cgroup.path().clone_into(&mut self.place);
        }
        Ok(())
    }

    /// Sends to the list called `targets` for about `length`; an error if a single request fails.
    pub(super) fn slice(&mut self, task: Task, targets: &str, length: Duration) -> Result<Slice> {
        match self.order(&Order::Run {
            task,
            targets: targets.to_owned(),
            length,
        })? {
            Report::Slice(slice) => Ok(slice),
            Report::Failed(error) => bail!(error),
            Report::Known | Report::Held { .. } => bail!("the sender did not send"),
        }
    }

    /// Gives an order and waits for the report.
    pub(super) fn order(&mut self, order: &Order) -> Result<Report> {
        let mut line = serde_json::to_string(order).context("cannot encode an order")?;
        line.push('\n');
        self.orders
            .write_all(line.as_bytes())
            .context("the sender does not listen any more")?;
        line.clear();
        self.reports
            .read_line(&mut line)
            .context("cannot read from the sender")?;
        serde_json::from_str(&line).with_context(|| format!("the sender said {line:?}"))
    }
}

/// A pod that has every endpoint's address, and room for as many connections as come at once.
pub(super) fn endpoints(world: &World) -> Result<Host> {
    let addresses: Vec<IpAddr> = (1..=clusters::ENDPOINTS)
        .flat_map(|number| [false, true].map(|ipv6| clusters::pod_address(number, ipv6)))
        .collect();
    let pod = world.pod("endpoints", &addresses)?;
    pod.netns().sysctls(&[("core/somaxconn", "65535")])?;
    Ok(pod)
}

/// Starts what answers at the endpoints in `pod`.
pub(super) fn start_answering(pod: &Host) -> Result<Process> {
    let mut command = own_program("answer")?;
    for kind in [Kind::Tcp, Kind::Tcp6] {
        command.args(
            kind.endpoints()
                .iter()
                .map(|address| format!("--tcp={address}")),
        );
    }
    command.args(
        Kind::Udp
            .endpoints()
            .iter()
            .map(|address| format!("--udp={address}")),
    );
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = pod.spawn(command)?;
    wait_until_ready(&mut process)?;
    Ok(process)
}

/// Waits until servers say that they listen.
pub(super) fn wait_until_ready(servers: &mut Process) -> Result<()> {
    let stdout = servers.child().stdout.take();
    let stdout = stdout.context("the servers have no stdout")?;
    let mut line = String::new();
    BufReader::new(stdout)
        .read_line(&mut line)
        .context("cannot read from the servers")?;
    if line.trim() != worker::READY {
        bail!("the servers ended instead of getting ready");
    }
    Ok(())
}

/// This program, to be started as one of its hidden parts.
pub(super) fn own_program(subcommand: &str) -> Result<Command> {
    let path = std::env::current_exe().context("cannot find this program's own path")?;
    let mut command = Command::new(path);
    command.arg(subcommand);
    Ok(command)
}
