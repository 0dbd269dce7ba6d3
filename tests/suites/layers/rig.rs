//! What the tests of faults share: the default agent on a small cluster, traffic through both layers,
//! and what the agent tells of each.

use std::{net::SocketAddr, process::Command};

use proxy_tests::{
    Agent, AgentOptions, Prober, Shop, Traffic,
    agent::{self, LogLine},
    pod::{Load, Transport},
    process::Process,
    requires::{self, NFTABLES, Need, PRIVILEGED},
    scraped,
    shop::{LoadKind, loads},
    world::Place,
};
use serde_json::Value;

use super::{SUITE, tracked::flows};
use crate::nftables::owner::TableOwner;

/// The layer that decides first.
pub const ABOVE: &str = "ebpf";
/// The one beneath it.
pub const BENEATH: &str = "nftables";

/// New connections all the time, and such that stay.
pub const LOADS: [LoadKind; 7] = [
    ("http", Transport::Http, false, false),
    ("tcp6", Transport::Tcp, false, true),
    ("tcp-mapped", Transport::TcpMapped, false, false),
    ("kept", Transport::Tcp, true, false),
    ("kept6", Transport::Tcp, true, true),
    ("udp", Transport::Udp, false, false),
    ("udp-kept", Transport::Udp, true, false),
];

/// Whether both layers can serve here.
pub fn can_run() -> bool {
    requires::met(SUITE, PRIVILEGED) && requires::met(SUITE, NFTABLES)
}

/// The default agent, with further arguments.
pub fn options(arguments: &[&str]) -> AgentOptions {
    let arguments = ["--proxy-mode=auto"].iter().chain(arguments);
    AgentOptions {
        arguments: arguments.map(|one| (*one).to_owned()).collect(),
        ..AgentOptions::default()
    }
}

/// The same over IPv4 alone, for tests that take IPv6 away.
pub fn over_ipv4() -> Vec<Load> {
    let mut loads = loads(1, &LOADS);
    loads.retain(|load| load.to.is_ipv4());
    loads
}

/// Traffic of processes of the pod, to the Service 1.
pub fn from_the_pod(shop: &Shop) -> Traffic {
    Traffic::start("pod", &shop.client, loads(1, &LOADS)).unwrap()
}

/// Traffic of processes of the node.
pub fn from_the_node(shop: &Shop) -> Traffic {
    let mut loads = loads(1, &LOADS);
    // A kernel that may give the node's own packets to an older socket: only where nftables takes over.
    let whole = requires::met(SUITE, &[Need::RightSocket]);
    loads.retain(|load| whole || load.name != "tcp6");
    Traffic::start("node", shop.world.node(), loads).unwrap()
}

/// A prober in `place`.
pub fn prober(place: &Place<'_>) -> Prober {
    Prober::start_with(|command| place.spawn(command)).unwrap()
}

/// Traffic of a process in `place`, which no hook sees.
pub fn from(place: &Place<'_>) -> Traffic {
    Traffic::of("unseen", prober(place), loads(1, &LOADS)).unwrap()
}

/// What is no failure where the hooks go while connections are led by them: nobody is left to say what
/// a connected socket dialled, and an answer under way shows who sent it. Of new connections, that is
/// the one that is just open.
pub fn excused(load: &Load, what: &str, count: u64) -> bool {
    let shows = what.starts_with("getpeername shows ")
        || load.transport.is_udp() && what.starts_with("recvfrom shows ");
    shows && (load.keep || count <= 3)
}

/// Which endpoint answers; it must.
pub fn answer(prober: &mut Prober, to: SocketAddr) -> SocketAddr {
    let attempt = prober.send(Transport::Tcp, to, 1).unwrap().remove(0);
    attempt
        .answer_as(to)
        .unwrap_or_else(|error| panic!("{to}: {error}"))
}

/// Whether a new connection to `to`, which nothing else dials, is translated: the layer beneath has
/// decided.
pub fn is_translated(shop: &Shop, prober: &mut Prober, to: SocketAddr) -> bool {
    let tracked = |flow: &super::tracked::Flow| flow.original[1] == to;
    assert!(!flows(&shop.world).iter().any(tracked), "{to} was dialled");
    answer(prober, to);
    flows(&shop.world).iter().any(tracked)
}

/// What `state` tells of the agent.
pub fn told(agent: &Agent<'_>) -> Value {
    let mut command = agent.command("state").unwrap();
    command.args(["-o", "json"]);
    let done = Process::run("proxy-agent", command, agent::LIMIT).unwrap();
    assert_eq!(done.code, Some(0), "{done:?}");
    let told: Value = serde_json::from_str(&done.stdout).unwrap();
    told["agent"].clone()
}

/// What `state` tells of a layer: above first, as the layers are.
pub fn layer(told: &Value, name: &str) -> Value {
    let layers = told["layers"].as_array().unwrap();
    let names: Vec<_> = layers.iter().map(|layer| &layer["backend"]).collect();
    assert_eq!(names, [ABOVE, BENEATH]);
    let mut all = layers.iter();
    all.find(|layer| layer["backend"] == name).unwrap().clone()
}

/// What the agent says at `/metrics`.
pub fn metrics(shop: &Shop) -> String {
    scraped::metrics(shop.world.node()).unwrap()
}

/// `culvert_layer_in_force` of a layer.
pub fn in_force(shop: &Shop, layer: &str) -> bool {
    let text = metrics(shop);
    let name = format!("culvert_layer_in_force{{layer=\"{layer}\"}}");
    let value = scraped::sample(&text, &name).unwrap_or_else(|| panic!("no {name} in {text}"));
    value > 0.0
}

/// All is well, by `state` and metrics.
pub fn assert_whole(shop: &Shop, agent: &Agent<'_>) {
    let told = told(agent);
    assert_eq!(told["inForce"], true, "{told:#}");
    assert_eq!(told["suffices"], true, "{told:#}");
    assert_eq!(told["lacks"], Value::Array(vec![]), "{told:#}");
    for name in [ABOVE, BENEATH] {
        let layer = layer(&told, name);
        assert_eq!(layer["inForce"], true, "{layer:#}");
        assert_eq!(layer["serves"], true, "{layer:#}");
        assert_eq!(layer["failure"], Value::Null, "{layer:#}");
        assert_eq!(layer["retryAt"], Value::Null, "{layer:#}");
        assert!(in_force(shop, name), "{name}");
    }
}

/// Waits until a layer says that it repaired something.
pub fn repaired(agent: &mut Agent<'_>, layer: &str) -> LogLine {
    let what = format!("{layer} repaired");
    agent
        .wait_for_line(&what, |line| {
            line.message() == Some("kernel state repaired") && line.text("layer") == Some(layer)
        })
        .unwrap()
}

/// Waits until a layer says that it begins to serve.
pub fn serving(agent: &mut Agent<'_>, layer: &str) -> LogLine {
    let what = format!("{layer} serves");
    agent
        .wait_for_line(&what, |line| {
            line.message() == Some("serving") && line.text("backend") == Some(layer)
        })
        .unwrap()
}

/// Has `nft` do something on the node.
pub fn nft(shop: &Shop, arguments: &[&str]) {
    let run = || Command::new("nft").args(arguments).output();
    let done = shop.world.node().netns().run(run).unwrap().unwrap();
    assert!(done.status.success(), "{arguments:?}: {done:?}");
}

/// Somebody else takes a table of the layer beneath.
pub fn take_table(shop: &Shop) -> TableOwner {
    TableOwner::of(shop.world.node(), "ip6 culvert").unwrap()
}
