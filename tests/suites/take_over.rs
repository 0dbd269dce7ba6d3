//! A node on which this agent takes kube-proxy's place, and gives it back: its real rules for a real
//! cluster, connections that stay and new ones all the time, and none is lost. Needs root and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    io::Write as _,
    net::{IpAddr, SocketAddr},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use proxy_agent::leftovers;
use proxy_backend::OpenError;
use proxy_backend_nftables::{self as nftables, Duty};
use proxy_tests::{
    Agent, AgentOptions, Prober, Server, Traffic, World,
    agent::{LIMIT, Rights},
    pod::{Listen, Load, Transport},
    requires::{self, NFTABLES, Need, PRIVILEGED},
    world::Host,
};

use crate::nftables::owner::TableOwner;

const SUITE: &str = "take_over";
const CLUSTER: &str = include_str!("../data/cluster-mixed.yaml");
const KUBE_PROXY_IPTABLES: &str = include_str!("../data/kube-proxy-iptables-node-a.txt");
const KUBE_PROXY_IP6TABLES: &str = include_str!("../data/kube-proxy-ip6tables-node-a.txt");
const KUBE_PROXY_NFTABLES: &str = include_str!("../data/kube-proxy-nftables-node-a.txt");

/// `shop/web`, port https, and kube-dns, in both families: the rules lead them where the objects do.
const FRONTENDS: [(&str, &str); 2] = [
    ("10.96.10.1:443", "10.96.0.10:53"),
    ("[fd00:10:96::1001]:443", "[fd00:10:96::a]:53"),
];
/// Endpoints of the one, and of the other.
const WEB: [&str; 5] = [
    "10.244.0.10",
    "10.244.1.10",
    "10.244.2.10",
    "fd00:10:244::10",
    "fd00:10:244:1::10",
];
const DNS: [&str; 4] = [
    "10.244.0.2",
    "10.244.1.2",
    "fd00:10:244::2",
    "fd00:10:244:1::2",
];
/// Connections that stay, of each kind and family.
const KEPT: u32 = 10;

/// How kube-proxy's rules came into the kernel.
#[derive(Debug, Clone, Copy)]
enum Rules {
    Nftables,
    Iptables(&'static str),
}

/// A node with pods that serve what the rules lead to.
struct Node {
    world: World,
    client: Host,
    _endpoints: Host,
    _server: Server,
}

impl Node {
    fn new() -> Self {
        let world = World::routed(&[], &[]).unwrap();
        let client = ["10.244.254.1", "fd00:10:244::fe01"].map(|text| text.parse().unwrap());
        let client = world.pod("client", &client).unwrap();
        let [web, dns] = [&WEB[..], &DNS[..]].map(|texts| {
            let addresses = texts.iter().map(|text| text.parse::<IpAddr>().unwrap());
            addresses.collect::<Vec<_>>()
        });
        let addresses = [web.clone(), dns.clone()].concat();
        let endpoints = world.pod("endpoints", &addresses).unwrap();
        let web = web.into_iter().map(|ip| Listen::tcp((ip, 8443).into()));
        let dns = dns.into_iter().map(|ip| Listen::udp((ip, 53).into()));
        let server = Server::start(&endpoints, &web.chain(dns).collect::<Vec<_>>()).unwrap();
        Self {
            world,
            client,
            _endpoints: endpoints,
            _server: server,
        }
    }

    /// Runs a program of the node, and gives it `input`.
    fn run(&self, command: &str, input: &str) {
        let done = self.world.node().netns().run(|| {
            let mut words = command.split(' ');
            let mut child = Command::new(words.next().unwrap())
                .args(words)
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(input.as_bytes()).unwrap();
            drop(stdin);
            child.wait().unwrap().success()
        });
        assert!(done.unwrap(), "{command}");
    }

    /// Whatever its rules were in.
    fn has_nothing_of_kube_proxy(&self) {
        let found = self.world.node().netns().run(leftovers::find).unwrap();
        assert!(found.leftovers.is_empty(), "{found:?}");
    }

    /// What kube-proxy does when it starts.
    fn kube_proxy(&self, rules: Rules) {
        match rules {
            Rules::Nftables => self.run("nft -f -", KUBE_PROXY_NFTABLES),
            Rules::Iptables(kind) => {
                for (name, rules) in [
                    ("iptables", KUBE_PROXY_IPTABLES),
                    ("ip6tables", KUBE_PROXY_IP6TABLES),
                ] {
                    let restore = format!("{name}-{kind}-restore --noflush --wait=20");
                    self.run(&restore, &without_counting(rules));
                }
            }
        }
    }
}

/// Kube-proxy counts with objects that not every kernel has; it leaves them away there, too.
fn without_counting(rules: &str) -> String {
    let lines = rules.lines().map(|line| {
        let (rule, counted) = line
            .split_once(" -m nfacct --nfacct-name  ")
            .unwrap_or((line, ""));
        let rest = counted.split_once(' ').map_or("", |(_, rest)| rest);
        format!("{rule}{}{rest}\n", if rest.is_empty() { "" } else { " " })
    });
    lines.collect()
}

/// Connections that stay and new ones, over TCP and UDP, in both families.
fn loads() -> Vec<Load> {
    let mut loads = Vec::new();
    for (family, (web, dns)) in ["4", "6"].into_iter().zip(FRONTENDS) {
        for (name, transport, keep) in [
            ("tcp", Transport::Tcp, false),
            ("tcp-kept", Transport::Tcp, true),
            ("udp", Transport::Udp, false),
            ("udp-kept", Transport::Udp, true),
            ("udp-connected-kept", Transport::UdpConnected, true),
        ] {
            let to = if transport.is_udp() { dns } else { web };
            loads.push(Load {
                name: format!("{name}{family}"),
                transport,
                to: to.parse::<SocketAddr>().unwrap(),
                threads: if keep { KEPT } else { 1 },
                pause: Duration::from_millis(if keep { 20 } else { 1 }),
                keep,
            });
        }
    }
    loads
}

/// The node itself, as a client.
const NODE: &str = "node";

/// While the eBPF programs are taken away, an answer that is under way is not given the address that
/// was dialled, and a connection that is just open does not show it: one for each socket at most.
fn excused(load: &Load, what: &str, count: u64) -> bool {
    let shows = if load.transport.is_udp() {
        "recvfrom shows "
    } else {
        "getpeername shows "
    };
    what.starts_with(shows) && count <= load.threads.into()
}

fn traffic(of: &'static str, host: &Host) -> Traffic {
    let mut loads = loads();
    let whole = of != NODE || requires::met(SUITE, &[Need::RightSocket]);
    loads.retain(|load| whole || load.name != "tcp6");
    let traffic = Traffic::start(of, host, loads).unwrap();
    traffic.excusing(excused)
}

/// What takes over: both layers, or either alone.
const LAYERS: &[&str] = &["--proxy-mode=auto"];
const RULES: &[&str] = &["--proxy-mode=nftables"];
const HOOKS: &[&str] = &["--proxy-mode=ebpf", "--backend-order=ebpf"];

fn there_and_back(rules: Rules, to: &[&str]) {
    there_and_back_with(rules, started_with(&[to, &["--take-over"]].concat()));
}

fn started_with(arguments: &[&str]) -> AgentOptions {
    AgentOptions {
        arguments: arguments.iter().map(|one| (*one).to_owned()).collect(),
        ..AgentOptions::default()
    }
}

fn there_and_back_with(rules: Rules, options: AgentOptions) {
    let needs = [
        Need::Tool("iptables-nft-restore"),
        Need::Tool("iptables-legacy-restore"),
    ];
    if ![PRIVILEGED, NFTABLES, &needs]
        .iter()
        .all(|needs| requires::met(SUITE, needs))
    {
        return;
    }
    let node = Node::new();
    node.kube_proxy(rules);
    let mut traffic = [
        traffic("pod", &node.client),
        traffic(NODE, node.world.node()),
    ];
    let mut all_go_on = |when: &str| {
        for one in &mut traffic {
            one.goes_on(when).unwrap();
        }
    };
    all_go_on("by kube-proxy");
    let mut agent = Agent::start(&node.world, options, &[("cluster.yaml", CLUSTER)]).unwrap();
    all_go_on("taking over");
    agent.wait_for("kube-proxy's place is taken").unwrap();
    node.has_nothing_of_kube_proxy();
    all_go_on("taken over");

    // And back, as docs/ARCHITECTURE.md has it: its rules first, then ours go.
    node.kube_proxy(rules);
    all_go_on("with both");
    agent.terminate().unwrap();
    agent.cleanup().unwrap();
    all_go_on("given back");
}

/// Its chains are taken over where they are, and given back there.
fn in_place(kind: &'static str) {
    let needs = [
        Need::Tool("iptables-nft-restore"),
        Need::Tool("iptables-legacy-restore"),
    ];
    if ![PRIVILEGED, &needs]
        .iter()
        .all(|needs| requires::met(SUITE, needs))
    {
        return;
    }
    let node = Node::new();
    node.kube_proxy(Rules::Iptables(kind));
    let mut traffic = [
        traffic("pod", &node.client),
        traffic(NODE, node.world.node()),
    ];
    let mut all_go_on = |when: &str| {
        for one in &mut traffic {
            one.goes_on(when).unwrap();
        }
    };
    all_go_on("by kube-proxy");
    let options = started_with(&["--proxy-mode=iptables", "--take-over"]);
    let mut agent = Agent::start(&node.world, options, &[("cluster.yaml", CLUSTER)]).unwrap();
    let serving = agent.serving().unwrap();
    assert_eq!(serving.flag("adopted"), Some(true));
    assert_eq!(serving.text("flavour"), Some(kind));
    all_go_on("taken over");
    node.has_nothing_of_kube_proxy();
    agent.terminate().unwrap();
    node.kube_proxy(Rules::Iptables(kind));
    all_go_on("given back");
}

#[test]
fn from_iptables_nft_to_the_same_chains_and_back() {
    in_place("nft");
}

#[test]
fn from_iptables_legacy_to_the_same_chains_and_back() {
    in_place("legacy");
}

/// Nobody is told that all is done while something is not; and it is, once that is possible.
#[test]
fn what_cannot_be_removed_is_tried_again_and_until_then_no_place_is_taken() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let taken = "kube-proxy's place is taken";
    let node = Node::new();
    let owner = TableOwner::of(node.world.node(), "ip kube-proxy").unwrap();
    let options = started_with(&["--proxy-mode=nftables", "--take-over"]);
    let mut agent = Agent::start(&node.world, options, &[("cluster.yaml", CLUSTER)]).unwrap();
    let told = agent
        .wait_for("what kube-proxy left is not removed")
        .unwrap();
    let problem = told.text("problem").unwrap();
    assert!(problem.contains("table `kube-proxy`"), "{told:?}");
    owner.release().unwrap();
    agent.wait_for(taken).unwrap();
    let log = agent.log();
    let said = log.iter().filter(|line| line.message() == Some(taken));
    assert_eq!(said.count(), 1);
}

/// Whether what keeps connections is there.
fn is_kept(node: &Node) -> bool {
    let looked = node.world.node().netns().run(nftables::is_kept);
    looked.unwrap().unwrap()
}

#[test]
fn what_keeps_connections_goes_with_the_last_of_them() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let node = Node::new();
    node.kube_proxy(Rules::Nftables);
    let options = AgentOptions {
        arguments: [HOOKS, &["--take-over"]]
            .concat()
            .iter()
            .map(|one| (*one).to_owned())
            .collect(),
        ..AgentOptions::default()
    };
    // A connection of the node's own, which no agent has led.
    let place = node.world.outside().unwrap();
    let mut outside = Prober::start_with(|command| place.spawn(command)).unwrap();
    let dns = FRONTENDS[1].1.parse().unwrap();
    let transport = Transport::UdpConnected;
    let stays = |prober: &mut Prober| {
        let attempts = prober.send_on("stays", transport, dns, 1).unwrap();
        attempts[0].answer_as(dns).unwrap();
    };
    stays(&mut outside);
    let files = [("cluster.yaml", CLUSTER)];
    let mut agent = Agent::start(&node.world, options, &files).unwrap();
    agent
        .wait_for("connections that others translate are kept")
        .unwrap();
    stays(&mut outside);
    agent.wait_for("kube-proxy's place is taken").unwrap();
    stays(&mut outside);
    assert!(is_kept(&node));
    // Who finds it takes care of it.
    agent.kill().unwrap();
    agent.launch().unwrap();
    stays(&mut outside);
    assert!(is_kept(&node));
    // A cleanup of other pins leaves it to this agent, once that has found it.
    let keeper = format!("process {} of ", agent.pid().unwrap());
    let started = Instant::now();
    let holder = || nftables::holder(Duty::Connections).unwrap();
    while !node
        .world
        .node()
        .netns()
        .run(holder)
        .unwrap()
        .is_some_and(|who| who.starts_with(&keeper))
    {
        assert!(started.elapsed() < LIMIT);
    }
    let refused = node.world.node().netns().run(nftables::cleanup).unwrap();
    assert!(
        matches!(refused, Err(OpenError::Held { .. })),
        "{refused:?}"
    );
    assert!(is_kept(&node));
    // From its next packet on, the kernel forgets it when none comes for a second.
    let timeouts = ["udp_timeout", "udp_timeout_stream"];
    let soon = timeouts.map(|name| format!("netfilter/nf_conntrack_{name}"));
    let soon = soon.each_ref().map(|name| (&**name, "1"));
    node.world.node().netns().sysctls(&soon).unwrap();
    stays(&mut outside);
    agent
        .wait_for("tables for connections that others translated are no longer needed")
        .unwrap();
    assert!(!is_kept(&node));
}

#[test]
fn from_nftables_mode_to_layers_and_back() {
    there_and_back(Rules::Nftables, LAYERS);
}

#[test]
fn from_nftables_mode_to_nftables_and_back() {
    there_and_back(Rules::Nftables, RULES);
}

#[test]
fn from_nftables_mode_to_ebpf_and_back() {
    there_and_back(Rules::Nftables, HOOKS);
}

#[test]
fn from_iptables_nft_to_layers_and_back() {
    there_and_back(Rules::Iptables("nft"), LAYERS);
}

#[test]
fn from_iptables_nft_to_nftables_and_back() {
    there_and_back(Rules::Iptables("nft"), RULES);
}

#[test]
fn from_iptables_nft_to_ebpf_and_back() {
    there_and_back(Rules::Iptables("nft"), HOOKS);
}

/// As in kubeadm's DaemonSet with the image exchanged: nobody gives it a flag, and the image has no
/// program that it could call.
#[test]
fn from_iptables_nft_called_as_kube_proxy_without_any_program() {
    let launcher = [
        "bash",
        "-c",
        "PATH=/nowhere exec -a /usr/local/bin/kube-proxy \"$@\"",
        "bash",
    ];
    let options = AgentOptions {
        launcher: launcher.map(str::to_owned).into(),
        rights: Rights::Root,
        ..started_with(LAYERS)
    };
    there_and_back_with(Rules::Iptables("nft"), options);
}

#[test]
fn from_iptables_legacy_to_layers_and_back() {
    there_and_back(Rules::Iptables("legacy"), LAYERS);
}

#[test]
fn from_iptables_legacy_to_nftables_and_back() {
    there_and_back(Rules::Iptables("legacy"), RULES);
}

#[test]
fn from_iptables_legacy_to_ebpf_and_back() {
    there_and_back(Rules::Iptables("legacy"), HOOKS);
}
