//! A node that goes from one backend to another, by a restart or while it serves: no connection
//! fails, and nothing of the first one is left. Needs root and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::process::Command;

use proxy_tests::{
    Agent, AgentOptions, Shop, Traffic,
    agent::LIMIT,
    pod::{Load, Transport},
    process::Process,
    requires::{self, NFTABLES, Need, PRIVILEGED},
    shop::{LoadKind, loads, service},
};
use serde_json::{Value, json};

const SUITE: &str = "switch";
const FILE: &str = "cluster.yaml";
const NODE_PORT: &str = "shop/s2:http/TCP/IPv4";

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

fn from_a_pod(shop: &Shop) -> Traffic {
    let traffic = Traffic::start("pod", &shop.client, loads(1, &LOADS)).unwrap();
    traffic.excusing(excused)
}

fn from_the_node(shop: &Shop) -> Traffic {
    let mut loads = loads(1, &LOADS);
    let whole = requires::met(SUITE, &[Need::RightSocket]);
    loads.retain(|load| whole || load.name != "tcp6");
    let traffic = Traffic::start("node", shop.world.node(), loads).unwrap();
    traffic.excusing(excused)
}

/// An answer that is under way while the eBPF programs are taken away is not given the address that
/// was dialled: one for each socket at most, each time.
const UNDER_WAY: &str = "recvfrom shows ";
/// Nobody is left then to say what a socket dialled that stays connected.
const PEER: &str = "getpeername shows ";

fn excused(load: &Load, what: &str, count: u64) -> bool {
    let under_way = load.transport.is_udp() && what.starts_with(UNDER_WAY) && count <= 3;
    under_way || load.keep && what.starts_with(PEER)
}

fn mode(name: &str) -> AgentOptions {
    AgentOptions {
        arguments: vec![format!("--proxy-mode={name}")],
        ..AgentOptions::default()
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
fn a_restart_with_another_backend_fails_no_connection() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*service(1, &[1, 2, 3]))];
    let mut agent = Agent::start(&shop.world, mode("ebpf"), &files).unwrap();
    let (mut pod, mut node) = (from_a_pod(&shop), from_the_node(&shop));
    let mut from = "ebpf";
    for (number, (to, kill)) in (1..).zip([
        ("nftables", false),
        ("ebpf", false),
        ("nftables", true),
        ("nftables", true),
        ("ebpf", true),
    ]) {
        let (before, after) = (
            format!("before restart {number}, from {from} to {to}"),
            format!("after restart {number}, from {from} to {to}"),
        );
        pod.goes_on(&before).unwrap();
        node.goes_on(&before).unwrap();
        if kill {
            agent.kill().unwrap();
        } else {
            agent.terminate().unwrap();
        }
        agent.options().arguments = mode(to).arguments;
        agent.launch().unwrap();
        if std::mem::replace(&mut from, to) != to {
            agent
                .wait_for("what another backend left is removed")
                .unwrap();
        }
        pod.goes_on(&after).unwrap();
        node.goes_on(&after).unwrap();
        assert_eq!(agent.serving().unwrap().text("backend"), Some(to));
        assert_eq!(agent.pins().entries().is_empty(), to == "nftables", "{to}");
        assert_eq!(has_table(&shop, "culvert"), to == "nftables", "{to}");
    }
    pod.stop().unwrap();
    node.stop().unwrap();
    // The one that stays was begun with the first backend, or led on by the last.
    assert!(!has_table(&shop, "culvert"));
}

#[test]
fn mode_auto_changes_to_a_backend_that_does_what_a_new_service_needs() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*service(1, &[1, 2]))];
    let mut agent = Agent::start(&shop.world, mode("auto"), &files).unwrap();
    assert_eq!(agent.serving().unwrap().text("backend"), Some("ebpf"));
    let mut pod = from_a_pod(&shop);
    pod.goes_on("before").unwrap();

    let node_port = service(2, &[3]).replace(
        "{name: http, port: 80, protocol: TCP}",
        "{name: http, port: 80, protocol: TCP, nodePort: 30080}",
    );
    let node_port = node_port.replace("spec:\n", "spec:\n  type: NodePort\n");
    agent.apply("more.yaml", &node_port).unwrap();
    let chosen = agent
        .wait_for_line("another backend is chosen", |line| {
            line.message() == Some("backend chosen") && line.text("backend") == Some("nftables")
        })
        .unwrap();
    assert_eq!(chosen.text("mode"), Some("auto"));
    // Whoever looks for the reason finds the Service, and what is lost by the change.
    assert_eq!(
        chosen.list("services").unwrap(),
        [NODE_PORT, "shop/s2:http/TCP/IPv6"]
    );
    assert_eq!(chosen.list("capabilities").unwrap(), ["external-traffic"]);
    assert_eq!(chosen.list("lacks").unwrap(), ["loopback-node-ports"]);
    let reason = chosen.text("reason").unwrap();
    assert!(reason.starts_with(NODE_PORT), "{reason}");
    let told = agent.log();
    let of = |message: &str| {
        let mut lines = told.iter().filter(|line| line.message() == Some(message));
        let line = lines
            .next()
            .unwrap_or_else(|| panic!("no {message}: {told:?}"));
        assert_eq!(line.text("service"), Some(NODE_PORT));
        line.text("capability").map(str::to_owned)
    };
    assert_eq!(of("capability gap").as_deref(), Some("external-traffic"));
    assert_eq!(
        of("capability gap closed").as_deref(),
        Some("external-traffic")
    );
    agent.wait_for("synced").unwrap();
    let to = (proxy_tests::world::NODE_ADDRESSES[0], 30080).into();
    let attempts = pod.prober.send(Transport::Tcp, to, 5).unwrap();
    for attempt in attempts {
        attempt.answer_as(to).unwrap();
    }
    agent
        .wait_for("what another backend left is removed")
        .unwrap();
    pod.goes_on("after").unwrap();
    assert!(agent.pins().entries().is_empty());
    let mut command = agent.command("state").unwrap();
    command.args(["-o", "json"]);
    let told = Process::run("proxy-agent", command, LIMIT).unwrap();
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(told["agent"]["backend"], "nftables");
    assert_eq!(told["agent"]["suffices"], true);
    let services = told["services"].as_array().unwrap();
    for one in services {
        let has = one["name"] == "s2" && one["port"] == "http";
        let missing = if has {
            json!(["loopback-node-ports"])
        } else {
            json!([])
        };
        assert_eq!(one["missing"], missing, "{one}");
    }
    let mut command = agent.command("explain").unwrap();
    command.args([
        "--from",
        "127.0.0.1",
        "--to",
        "127.0.0.1:30080/tcp",
        "--path",
        "socket",
    ]);
    let story = Process::run("proxy-agent", command, LIMIT).unwrap().stdout;
    let expected = "The backend nftables cannot do all of this yet:\n  loopback-node-ports: ";
    assert!(story.contains(expected), "{story}");

    // It stays: one change of the dataplane is enough.
    agent.delete("more.yaml").unwrap();
    agent.wait_for("synced").unwrap();
    pod.goes_on("in the end").unwrap();
    pod.stop().unwrap();
}
