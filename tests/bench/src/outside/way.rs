//! One way from a host outside to endpoints, in a world of its own.

use std::{fmt, net::SocketAddr, path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};

use super::{
    super::{
        clusters,
        kernel_time::Program,
        rig::{self, Sender},
        sizes::{SMALL, Size},
        task::{Slice, Task},
        worker::{Order, Report},
    },
    cluster::{self, NODE_PORTS, SERVERS},
    memory,
    place::{Endpoints, Place},
};
use proxy_common::names::TRACKED_FLOWS;
use proxy_harness::{
    Agent, AgentOptions, World,
    agent::LogLine,
    netns::NetNs,
    process::Process,
    requires::{self, NFTABLES},
    world::{Host, Neighbour},
};

/// The wires of hosts outside, one that carries no address of the Node object too.
const DEVICES: &str = "--devices=ext*";
/// Connections that one process holds: many may not open more files.
const EACH: u32 = 10_000;

/// Who translates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nobody: the endpoints themselves are dialled.
    Plain,
    /// Programs on the device, with nothing beneath.
    Alone,
    /// Programs on the device above nftables, the default.
    Layers,
    /// The nftables backend.
    Nftables,
    /// Rules of nftables written by hand, three ports of them.
    ByHand,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain forwarding",
            Self::Alone => "ebpf alone",
            Self::Layers => "layers",
            Self::Nftables => "nftables",
            Self::ByHand => "DNAT by hand",
        })
    }
}

impl Kind {
    /// Those of an agent, if there is one.
    pub(super) fn arguments(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Plain | Self::ByHand => None,
            Self::Alone => Some(&["--tc=on", DEVICES]),
            Self::Layers => Some(&["--proxy-mode=auto", DEVICES]),
            Self::Nftables => Some(&["--proxy-mode=nftables"]),
        }
    }

    /// Whether programs are on devices.
    pub(super) fn has_programs(self) -> bool {
        matches!(self, Self::Alone | Self::Layers)
    }

    /// Whether conntrack follows each flow.
    fn has_conntrack(self) -> bool {
        !matches!(self, Self::Plain | Self::Alone)
    }
}

/// A world for each way that this kernel has.
pub(super) fn worlds() -> Result<Vec<(Kind, World)>> {
    let mut kinds = vec![Kind::Plain, Kind::Alone];
    if requires::unmet(NFTABLES).is_none() {
        kinds.extend([Kind::Layers, Kind::Nftables, Kind::ByHand]);
    }
    kinds
        .into_iter()
        .map(|kind| Ok((kind, World::routed(&[], &[])?)))
        .collect()
}

/// What the ways are compared in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    /// Where the endpoints are.
    pub(super) place: Place,
    /// How many other Services there are.
    pub(super) size: Size,
    /// How many connections are open meanwhile.
    pub(super) live: u32,
}

impl Case {
    /// A small cluster, and no connection but those that are measured.
    pub(super) fn small(place: Place) -> Self {
        Self {
            place,
            size: SMALL,
            live: 0,
        }
    }

    /// Room for twice as many flows, so that closed ones stay as long as they would otherwise.
    fn room(self) -> String {
        let entries = u32::try_from(self.place.entries()).unwrap_or(u32::MAX);
        let flows = self.live.saturating_mul(entries);
        format!("--map-size=TRACK={}", flows.max(TRACKED_FLOWS))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, size, live } = self;
        write!(f, "{place}, {size} services, {live} connections")
    }
}

/// A way. Dropped in the order of its fields.
pub(super) struct Way<'w> {
    pub(super) kind: Kind,
    place: Place,
    holders: Vec<Sender>,
    sender: Sender,
    agent: Option<Agent<'w>>,
    _answering: Process,
    _endpoints: Endpoints,
    neighbour: Neighbour,
    node: &'w Host,
}

impl<'w> Way<'w> {
    /// Builds it in `world`, which is empty. No connection is held yet.
    pub(super) fn start(kind: Kind, world: &'w World, case: Case) -> Result<Self> {
        let place = case.place;
        let neighbour = world.neighbour(1)?;
        let endpoints = Endpoints::start(place, world)?;
        neighbour.host.netns().sends_from([1024, 65_535])?;
        let answering = answer(place, endpoints.host())?;
        let mut agent = match kind.arguments() {
            None => None,
            Some(arguments) => Some(agent(world, &neighbour, case, arguments)?),
        };
        if kind == Kind::ByHand {
            let node = world.node().netns();
            node.run(|| cluster::by_hand(place))??;
        }
        if let (true, Some(agent)) = (kind.has_programs(), &mut agent) {
            let devices = [&*neighbour.device].into_iter().chain(endpoints.device());
            served(agent, devices.collect())?;
        }
        let sender = Sender::start(&neighbour.host)?;
        let mut way = Self {
            kind,
            place,
            holders: Vec::new(),
            sender,
            agent,
            _answering: answering,
            _endpoints: endpoints,
            neighbour,
            node: world.node(),
        };
        for (index, task) in [Task::Connect, Task::Connected, Task::Stream]
            .into_iter()
            .enumerate()
        {
            let to = way.target(index);
            introduce(&mut way.sender, &task.to_string(), vec![to])?;
        }
        Ok(way)
    }

    /// What is dialled to reach the server with this number.
    fn target(&self, index: usize) -> SocketAddr {
        match self.kind {
            Kind::Plain => (self.place.addresses()[0], SERVERS[index]).into(),
            _ => (self.neighbour.node[0], NODE_PORTS[index]).into(),
        }
    }

    /// What is dialled for connections that are held.
    fn holding(&self) -> Vec<SocketAddr> {
        match self.kind {
            Kind::Plain => holds(self.place).collect(),
            _ => cluster::held()
                .map(|(port, _)| (self.neighbour.node[0], port).into())
                .collect(),
        }
    }

    /// Opens so many connections, for as long as it lives. Gives the bytes of kernel memory that whoever
    /// translates takes for each, and what they are.
    pub(super) fn hold(&mut self, count: u32) -> Result<Vec<(&'static str, f64)>> {
        const NAME: &str = "held";
        let mut left = count;
        while left > 0 {
            let now = left.min(EACH);
            let mut sender = Sender::start(&self.neighbour.host)?;
            introduce(&mut sender, NAME, self.holding())?;
            let report = sender.order(&Order::Hold {
                targets: NAME.to_owned(),
                count: now,
            })?;
            ensure!(
                matches!(report, Report::Held { .. }),
                "{}: {now} connections: {report:?}",
                self.kind
            );
            self.holders.push(sender);
            left -= now;
        }
        self.held(count)
            .with_context(|| format!("{}: {count} connections", self.kind))
    }

    /// What is held for so many connections. An error if that is less than it must be: somebody else serves.
    fn held(&self, count: u32) -> Result<Vec<(&'static str, f64)>> {
        let mut held = Vec::new();
        if let (true, Some(pins)) = (self.kind.has_programs(), self.pins()) {
            let track = memory::Track::of(pins)?;
            let entries = self.place.entries();
            ensure!(
                track.entries >= entries * count as usize,
                "TRACK has {} entries",
                track.entries
            );
            held.push(("TRACK", track.each * memory::number(entries)));
        }
        if self.kind.has_conntrack() {
            let there = self.node.netns().run(memory::conntrack_entries)??;
            ensure!(there >= count, "conntrack has {there} entries");
            held.push(("conntrack, without extensions", memory::conntrack_entry()?));
        }
        Ok(held)
    }

    /// Sends for about `length`.
    pub(super) fn slice(&mut self, task: Task, length: Duration) -> Result<Slice> {
        let slice = self.sender.slice(task, &task.to_string(), length);
        slice.with_context(|| format!("{}: {task}", self.kind))
    }

    /// Where the host outside is.
    pub(super) fn outside(&self) -> &NetNs {
        self.neighbour.host.netns()
    }

    /// What the agent pinned, if there is one.
    pub(super) fn pins(&self) -> Option<&Path> {
        self.agent.as_ref().map(|agent| agent.pins().path())
    }

    /// The programs on the device; none where they are no links (before Linux 6.6).
    pub(super) fn programs(&self) -> Result<Vec<Program>> {
        let Some(agent) = &self.agent else {
            return Ok(Vec::new());
        };
        let pins = agent.pins();
        let entries = pins.entries();
        let links = entries.iter().filter(|path| {
            path.starts_with("devices") && path.to_string_lossy().ends_with("gress")
        });
        links
            .map(|path| Program::behind_link(&pins.path().join(path)))
            .collect()
    }
}

fn introduce(sender: &mut Sender, name: &str, to: Vec<SocketAddr>) -> Result<()> {
    let order = Order::Targets {
        name: name.to_owned(),
        to,
    };
    match sender.order(&order)? {
        Report::Known => Ok(()),
        other => bail!("the sender said {other:?}"),
    }
}

/// Where endpoints hold connections.
fn holds(place: Place) -> impl Iterator<Item = SocketAddr> {
    cluster::held().flat_map(move |(_, server)| {
        let all = place.addresses().into_iter();
        all.map(move |address| (address, server).into())
    })
}

/// Starts what answers at the endpoints.
pub(super) fn answer(place: Place, host: &Host) -> Result<Process> {
    let addresses = place.addresses();
    let mut command = rig::own_program("answer")?;
    let servers = ["--tcp", "--udp", "--sink"].iter().zip(SERVERS);
    let measured = servers.map(|(flag, port)| (*flag, SocketAddr::new(addresses[0], port)));
    let holding = holds(place).map(|address| ("--hold", address));
    let all = measured.chain(holding);
    command
        .args(all.map(|(flag, address)| format!("{flag}={address}")))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut answering = host.spawn(command)?;
    rig::wait_until_ready(&mut answering)?;
    Ok(answering)
}

/// An agent whose Node object has the address that the neighbour dials.
fn agent<'w>(
    world: &'w World,
    neighbour: &Neighbour,
    case: Case,
    arguments: &[&str],
) -> Result<Agent<'w>> {
    let arguments = arguments.iter().map(|one| (*one).to_owned());
    let options = AgentOptions {
        arguments: arguments.chain([case.room()]).collect(),
        ..AgentOptions::default()
    };
    let files = [
        ("others.json", &*clusters::manifest(0..case.size.0)),
        (
            "outside.json",
            &*cluster::objects(neighbour.node[0], case.place),
        ),
    ];
    Agent::start(world, options, &files)
}

/// Waits until programs are on these devices.
pub(super) fn served(agent: &mut Agent<'_>, mut devices: Vec<&str>) -> Result<()> {
    while !devices.is_empty() {
        let is_it = |line: &LogLine| {
            line.message() == Some("device served")
                && line.text("device").is_some_and(|it| devices.contains(&it))
        };
        let line = agent.wait_for_line(&format!("{devices:?} are served"), is_it)?;
        devices.retain(|device| Some(*device) != line.text("device"));
    }
    Ok(())
}
