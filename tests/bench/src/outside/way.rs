//! One way from a host outside to a pod, in a world of its own.

use std::{
    fmt, fs,
    io::Write as _,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;

use super::super::{
    clusters,
    kernel_time::Program,
    rig::{self, Sender},
    sizes::Size,
    task::{Slice, Task},
    worker::{Order, Report},
};
use proxy_harness::{
    Agent, AgentOptions, World,
    agent::LogLine,
    netns::NetNs,
    process::Process,
    requires::{self, NFTABLES},
    world::{Host, Neighbour},
};

/// The pod's address.
const POD: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 244, 0, 1));
/// Where it listens: TCP, UDP, and TCP that only reads; and the NodePorts that lead there.
const SERVERS: [u16; 3] = [9003, 9004, 9005];
pub(super) const NODE_PORTS: [u16; 3] = [30_080, 30_053, 30_090];
/// The wires of hosts outside, one that carries no address of the Node object too.
const DEVICES: &str = "--devices=ext*";
/// Connections that one process holds: many may not open more files.
const EACH: u32 = 10_000;

/// Who translates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nobody: the pod itself is dialled.
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

/// A way. Dropped in the order of its fields.
pub(super) struct Way<'w> {
    pub(super) kind: Kind,
    holders: Vec<Sender>,
    sender: Sender,
    agent: Option<Agent<'w>>,
    _answering: Process,
    _pod: Host,
    neighbour: Neighbour,
}

impl<'w> Way<'w> {
    /// Builds it in `world`, which is empty; an agent serves `size` other Services beside.
    pub(super) fn start(kind: Kind, world: &'w World, size: Size) -> Result<Self> {
        let neighbour = world.neighbour(1)?;
        let pod = world.pod("endpoint", &[POD])?;
        pod.netns()
            .run(|| fs::write("/proc/sys/net/core/somaxconn", "65535"))??;
        neighbour.host.netns().run(|| {
            fs::write("/proc/sys/net/ipv4/ip_local_port_range", "1024 65535")
                .context("cannot widen the range of local ports")
        })??;
        let mut command = rig::own_program("answer")?;
        let servers = ["--tcp", "--udp", "--sink"].iter().zip(SERVERS);
        command
            .args(servers.map(|(flag, port)| format!("{flag}={}", SocketAddr::new(POD, port))))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut answering = pod.spawn(command)?;
        rig::wait_until_ready(&mut answering)?;
        let mut agent = match kind {
            Kind::Plain => None,
            Kind::ByHand => {
                world.node().netns().run(by_hand)??;
                None
            }
            Kind::Alone => Some(agent(world, &neighbour, size, &["--tc=on", DEVICES])?),
            Kind::Layers => Some(agent(
                world,
                &neighbour,
                size,
                &["--proxy-mode=auto", DEVICES],
            )?),
            Kind::Nftables => Some(agent(world, &neighbour, size, &["--proxy-mode=nftables"])?),
        };
        if let (Kind::Alone | Kind::Layers, Some(agent)) = (kind, &mut agent) {
            served(agent, &neighbour.device)?;
        }
        let sender = Sender::start(&neighbour.host)?;
        let mut way = Self {
            kind,
            holders: Vec::new(),
            sender,
            agent,
            _answering: answering,
            _pod: pod,
            neighbour,
        };
        for (index, task) in [Task::Connect, Task::Connected, Task::Stream]
            .into_iter()
            .enumerate()
        {
            let to = way.target(index);
            introduce(&mut way.sender, task, to)?;
        }
        Ok(way)
    }

    /// What is dialled to reach the server with this number.
    fn target(&self, index: usize) -> SocketAddr {
        match self.kind {
            Kind::Plain => (POD, SERVERS[index]).into(),
            _ => (self.neighbour.node[0], NODE_PORTS[index]).into(),
        }
    }

    /// Opens so many connections, for as long as it lives.
    pub(super) fn hold(&mut self, count: u32) -> Result<()> {
        let mut left = count;
        while left > 0 {
            let now = left.min(EACH);
            let mut sender = Sender::start(&self.neighbour.host)?;
            introduce(&mut sender, Task::Connect, self.target(0))?;
            let report = sender.order(&Order::Hold {
                targets: Task::Connect.to_string(),
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
        Ok(())
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

fn introduce(sender: &mut Sender, task: Task, to: SocketAddr) -> Result<()> {
    let order = Order::Targets {
        name: task.to_string(),
        to: vec![to],
    };
    match sender.order(&order)? {
        Report::Known => Ok(()),
        other => bail!("the sender said {other:?}"),
    }
}

/// An agent whose Node object has the address that the neighbour dials.
fn agent<'w>(
    world: &'w World,
    neighbour: &Neighbour,
    size: Size,
    arguments: &[&str],
) -> Result<Agent<'w>> {
    let options = AgentOptions {
        arguments: arguments.iter().map(|one| (*one).to_owned()).collect(),
        ..AgentOptions::default()
    };
    let files = [
        ("others.json", &*clusters::manifest(0..size.0)),
        ("outside.json", &*objects(neighbour.node[0])),
    ];
    Agent::start(world, options, &files)
}

/// Waits until programs are on the device.
fn served(agent: &mut Agent<'_>, device: &str) -> Result<()> {
    let is_it = |line: &LogLine| {
        line.message() == Some("device served") && line.text("device") == Some(device)
    };
    agent.wait_for_line(&format!("{device} is served"), is_it)?;
    Ok(())
}

/// The node, and the Service whose NodePorts are dialled.
fn objects(node: IpAddr) -> String {
    let names = ["tcp", "udp", "sink"];
    let protocols = ["TCP", "UDP", "TCP"];
    let ports = |of_service: bool| -> Vec<_> {
        let each = (0..3).map(|at| {
            let (name, protocol) = (names[at], protocols[at]);
            let (server, node_port) = (SERVERS[at], NODE_PORTS[at]);
            if of_service {
                json!({"name": name, "protocol": protocol, "port": server, "nodePort": node_port})
            } else {
                json!({"name": name, "protocol": protocol, "port": server})
            }
        });
        each.collect()
    };
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-a" },
          "status": { "addresses": [{ "type": "InternalIP", "address": node }] } },
        { "apiVersion": "v1", "kind": "Service",
          "metadata": { "name": "outside", "namespace": "bench" },
          "spec": { "type": "NodePort", "externalTrafficPolicy": "Local",
            "clusterIP": "10.96.240.1", "clusterIPs": ["10.96.240.1"],
            "ipFamilies": ["IPv4"], "ports": ports(true) } },
        { "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
          "metadata": { "name": "outside-a", "namespace": "bench",
            "labels": { "kubernetes.io/service-name": "outside" } },
          "addressType": "IPv4", "ports": ports(false),
          "endpoints": [{ "addresses": [POD], "conditions": { "ready": true },
            "nodeName": "node-a" }] }
    ] })
    .to_string()
}

/// As an administrator would write it for three ports.
fn by_hand() -> Result<()> {
    let [tcp, udp, sink] = NODE_PORTS;
    let [to_tcp, to_udp, to_sink] = SERVERS;
    let rules = format!(
        "table ip by_hand {{\n chain pre {{\n  type nat hook prerouting priority dstnat;\n  \
         tcp dport {tcp} dnat to {POD}:{to_tcp}\n  udp dport {udp} dnat to {POD}:{to_udp}\n  \
         tcp dport {sink} dnat to {POD}:{to_sink}\n }}\n}}\n"
    );
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot start nft")?;
    let mut stdin = child.stdin.take().context("nft has no stdin")?;
    stdin
        .write_all(rules.as_bytes())
        .context("nft does not read")?;
    drop(stdin);
    ensure!(child.wait()?.success(), "nft refused:\n{rules}");
    Ok(())
}
