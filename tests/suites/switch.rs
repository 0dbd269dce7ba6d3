//! A node that goes from one backend to another, by a restart or while it serves: no connection
//! fails, and nothing of the first one is left. Needs root and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "switch/often.rs"]
mod often;

use std::process::Command;

use proxy_tests::{
    Agent, AgentOptions, Prober, Shop, Traffic,
    agent::LIMIT,
    pod::{Load, Transport},
    process::Process,
    requires::{self, NFTABLES, Need, PRIVILEGED},
    shop::{LoadKind, loads, service},
};
use serde_json::{Value, json};

const SUITE: &str = "switch";
const FILE: &str = "cluster.yaml";

/// New connections all the time, and such that stay.
const LOADS: [LoadKind; 7] = [
    ("http", Transport::Http, false, false),
    ("tcp6", Transport::Tcp, false, true),
    ("tcp-mapped", Transport::TcpMapped, false, false),
    ("kept", Transport::Tcp, true, false),
    ("kept6", Transport::Tcp, true, true),
    ("udp", Transport::Udp, false, false),
    ("udp6", Transport::Udp, false, true),
];

pub fn from_a_pod(shop: &Shop) -> Traffic {
    let traffic = Traffic::start("pod", &shop.client, loads(1, &LOADS)).unwrap();
    traffic.excusing(excused)
}

fn from_the_node(shop: &Shop) -> Traffic {
    let traffic = Traffic::start("node", shop.world.node(), loads_of_the_node()).unwrap();
    traffic.excusing(excused)
}

fn loads_of_the_node() -> Vec<Load> {
    let mut loads = loads(1, &LOADS);
    let whole = requires::met(SUITE, &[Need::RightSocket]);
    loads.retain(|load| whole || load.name != "tcp6");
    loads
}

/// Once the eBPF programs are taken away, nobody is left to say what a socket dialled that stays
/// connected. Of those that were led a moment before, the programs still say it.
const PEER: &str = "getpeername shows ";

fn excused(load: &Load, what: &str, _count: u64) -> bool {
    load.keep && what.starts_with(PEER)
}

/// What serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    Layers,
    Nftables,
    Ebpf,
    Iptables,
}

use Stack::{Ebpf, Iptables, Layers, Nftables};

impl Stack {
    pub fn arguments(self) -> Vec<String> {
        let arguments: &[&str] = match self {
            Layers => &["--proxy-mode=auto"],
            Nftables => &["--proxy-mode=nftables"],
            Ebpf => &["--proxy-mode=ebpf", "--backend-order=ebpf"],
            Iptables => &["--proxy-mode=iptables"],
        };
        arguments.iter().map(|one| (*one).to_owned()).collect()
    }

    fn options(self) -> AgentOptions {
        AgentOptions {
            arguments: self.arguments(),
            ..AgentOptions::default()
        }
    }

    const fn has_hooks(self) -> bool {
        matches!(self, Layers | Ebpf)
    }

    const fn has_rules(self) -> bool {
        matches!(self, Layers | Nftables)
    }

    /// How many backends of `before` have no place in it.
    fn removes_from(self, before: Self) -> usize {
        let removed = [
            before.has_hooks() && !self.has_hooks(),
            before.has_rules() && !self.has_rules(),
            before == Iptables && self != Iptables,
        ];
        removed.into_iter().filter(|removed| *removed).count()
    }
}

/// Whether the node has a table of this name, in either family.
fn has_table(shop: &Shop, name: &str) -> bool {
    let list = || Command::new("nft").args(["list", "tables"]).output();
    let listed = shop.world.node().netns().run(list).unwrap().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    listed
        .lines()
        .any(|line| line.split(' ').nth(2) == Some(name))
}

#[test]
fn a_restart_with_other_layers_fails_no_connection() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    // Every pair, half of them by a kill.
    let shop = walk(
        Ebpf,
        &[
            (Nftables, false),
            (Layers, true),
            (Layers, true),
            (Nftables, false),
            (Ebpf, true),
            (Layers, false),
            (Ebpf, true),
            (Nftables, true),
            (Nftables, true),
            (Ebpf, true),
        ],
    );
    // The one that stays was begun with the first backend, or led on by the last.
    assert!(!has_table(&shop, "culvert"));
}

/// Whether every backend can serve here.
fn has_all() -> bool {
    let needs = [Need::Tool("iptables-nft-restore")];
    let all: [&[Need]; 3] = [PRIVILEGED, NFTABLES, &needs];
    all.iter().all(|needs| requires::met(SUITE, needs))
}

#[test]
fn a_restart_from_and_to_iptables_fails_no_connection() {
    if !has_all() {
        return;
    }
    walk(
        Iptables,
        &[
            (Nftables, false),
            (Iptables, true),
            (Layers, false),
            (Iptables, false),
            (Iptables, true),
            (Ebpf, true),
            (Iptables, true),
            (Nftables, true),
        ],
    );
}

/// Restarts an agent with one after the other, by a kill where it says so, under traffic.
fn walk(first: Stack, steps: &[(Stack, bool)]) -> Shop {
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*service(1, &[1, 2, 3]))];
    let mut agent = Agent::start(&shop.world, first.options(), &files).unwrap();
    let (mut pod, mut node) = (from_a_pod(&shop), from_the_node(&shop));
    let mut from = first;
    for (number, &(to, kill)) in (1..).zip(steps) {
        let (before, after) = (
            format!("before restart {number}, from {from:?} to {to:?}"),
            format!("after restart {number}, from {from:?} to {to:?}"),
        );
        pod.goes_on(&before).unwrap();
        node.goes_on(&before).unwrap();
        if kill {
            agent.kill().unwrap();
        } else {
            agent.terminate().unwrap();
        }
        agent.options().arguments = to.arguments();
        agent.launch().unwrap();
        for _ in 0..to.removes_from(std::mem::replace(&mut from, to)) {
            agent
                .wait_for("what another backend left is removed")
                .unwrap();
        }
        pod.goes_on(&after).unwrap();
        node.goes_on(&after).unwrap();
        assert_eq!(!agent.pins().entries().is_empty(), to.has_hooks(), "{to:?}");
        assert_eq!(has_table(&shop, "culvert"), to.has_rules(), "{to:?}");
    }
    pod.stop().unwrap();
    node.stop().unwrap();
    drop(agent);
    shop
}

#[test]
fn a_node_port_keeps_the_hooks_and_is_served_beneath_them() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*service(1, &[1, 2]))];
    let mut agent = Agent::start(&shop.world, Layers.options(), &files).unwrap();
    let mut pod = from_a_pod(&shop);
    pod.goes_on("before").unwrap();

    let node_port = service(2, &[3]).replace(
        "{name: http, port: 80, protocol: TCP}",
        "{name: http, port: 80, protocol: TCP, nodePort: 30080}",
    );
    let node_port = node_port.replace("spec:\n", "spec:\n  type: NodePort\n");
    agent.apply_and_sync("more.yaml", &node_port).unwrap();
    let to = (proxy_tests::world::NODE_ADDRESSES[0], 30080).into();
    let machine = shop.world.unseen(&shop.client).unwrap();
    let mut machine = Prober::start_with(|command| machine.spawn(command)).unwrap();
    for prober in [&mut pod.prober, &mut machine] {
        for attempt in prober.send(Transport::Tcp, to, 5).unwrap() {
            attempt.answer_as(to).unwrap();
        }
    }
    pod.goes_on("after").unwrap();
    let mut command = agent.command("state").unwrap();
    command.args(["-o", "json"]);
    let told = Process::run("proxy-agent", command, LIMIT).unwrap();
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(told["agent"]["backend"], "ebpf over nftables");
    assert_eq!(told["agent"]["suffices"], true);
    assert_eq!(told["agent"]["lacks"], json!([]));
    let services = told["services"].as_array().unwrap();
    assert!(
        services.iter().all(|one| one["missing"] == json!([])),
        "{services:?}"
    );
    let log = agent.log();
    let gaps = log
        .iter()
        .filter(|line| line.raw.contains("capability gap"));
    assert_eq!(gaps.count(), 0);
    pod.stop().unwrap();
}
