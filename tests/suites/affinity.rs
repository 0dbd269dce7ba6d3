//! Session affinity by the socket hooks: who keeps an endpoint, for how long, and what ends it.
//! Needs root and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use proxy_common::affinity::AffinityKey;
use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    bpf::Pinned,
    pod::Transport,
    requires::{self, PRIVILEGED},
    shop::{answers, dns, frontend, frontend6, http, service, small_service},
    world::NODE_ADDRESSES,
};

const FILE: &str = "cluster.yaml";
const ALL: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
const NODE_PORT: u16 = 30080;

/// The Service 1 with affinity for so many seconds, also as a NodePort.
fn sticky(endpoints: &[u8], seconds: u32) -> String {
    let affinity = format!(
        "spec:\n  sessionAffinity: ClientIP\n  sessionAffinityConfig: {{clientIP: \
         {{timeoutSeconds: {seconds}}}}}\n"
    );
    let node_port = format!("{{name: http, port: 80, nodePort: {NODE_PORT}, ");
    service(1, endpoints)
        .replacen("spec:\n", &affinity, 1)
        .replacen("{name: http, port: 80, ", &node_port, 1)
}

/// The only endpoint that answers many new connections.
fn kept(prober: &mut Prober, transport: Transport, to: SocketAddr) -> SocketAddr {
    let answers = answers(prober, transport, to).unwrap();
    assert_eq!(answers.len(), 1, "{to} is answered by {answers:?}");
    *answers.first().unwrap()
}

#[test]
fn a_client_keeps_its_endpoint_of_each_service_port() {
    if !requires::met("affinity", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let manifest = sticky(&ALL, 600);
    let mut agent =
        Agent::start(&shop.world, AgentOptions::default(), &[(FILE, &manifest)]).unwrap();
    let mut pod = Prober::start(&shop.client).unwrap();
    let mut node = Prober::start(shop.world.node()).unwrap();

    let to = frontend(1, 80);
    let of_pod = kept(&mut pod, Transport::Tcp, to);
    let of_node = kept(&mut node, Transport::Tcp, to);
    kept(&mut pod, Transport::Tcp, frontend6(1, 80));
    kept(&mut pod, Transport::Udp, frontend(1, 53));
    // Another address of the same port is the same to the client.
    let node_port = SocketAddr::new(NODE_ADDRESSES[0], NODE_PORT);
    assert_eq!(kept(&mut pod, Transport::Tcp, node_port), of_pod);

    // An agent that starts again knows no clients; the kernel does.
    agent.kill().unwrap();
    agent.launch().unwrap();
    assert_eq!(agent.serving().unwrap().flag("adopted"), Some(true));
    assert_eq!(kept(&mut pod, Transport::Tcp, to), of_pod);
    assert_eq!(kept(&mut node, Transport::Tcp, to), of_node);

    // Without its endpoint the client gets another, and keeps that; the other client is not
    // disturbed, unless it had the same.
    let left: Vec<u8> = ALL.into_iter().filter(|one| http(*one) != of_pod).collect();
    agent.apply_and_sync(FILE, &sticky(&left, 600)).unwrap();
    let now = kept(&mut pod, Transport::Tcp, to);
    assert_ne!(now, of_pod);
    if of_node != of_pod {
        assert_eq!(kept(&mut node, Transport::Tcp, to), of_node);
    }
    agent.apply_and_sync(FILE, &sticky(&ALL, 600)).unwrap();
    assert_eq!(kept(&mut pod, Transport::Tcp, to), now);

    // Without affinity all are met.
    agent.apply_and_sync(FILE, &service(1, &ALL)).unwrap();
    let every: BTreeSet<_> = ALL.into_iter().map(dns).collect();
    let answers = answers(&mut pod, Transport::Udp, frontend(1, 53)).unwrap();
    assert_eq!(answers, every);
    agent.terminate().unwrap();
}

/// With eight endpoints, a client that forgets meets another in all but one of 10^18 cases.
const VISITS: u32 = 20;
const TIMEOUT: Duration = Duration::from_secs(1);

#[test]
fn a_client_that_stays_away_for_too_long_is_forgotten() {
    if !requires::met("affinity", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let manifest = sticky(&ALL, 1);
    let mut agent =
        Agent::start(&shop.world, AgentOptions::default(), &[(FILE, &manifest)]).unwrap();
    let mut pod = Prober::start(&shop.client).unwrap();
    let to = frontend(1, 80);
    let visit = |pod: &mut Prober| {
        let attempts = pod.send(Transport::Tcp, to, 1).unwrap();
        attempts[0].answer_as(to).unwrap()
    };
    let first = visit(&mut pod);
    let another = (0..VISITS).any(|_| {
        // What is tested is that time passes.
        let start = Instant::now();
        while start.elapsed() <= TIMEOUT {
            thread::sleep(TIMEOUT / 10);
        }
        visit(&mut pod) != first
    });
    assert!(another, "{first} is kept for ever");
    agent.terminate().unwrap();
}

/// Keeps a prober on one CPU.
fn keep_on(prober: &Prober, cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu).unwrap();
    sched_setaffinity(prober.process().pid(), &only).unwrap();
}

/// As many clients as the map is said to hold: each Service port is one.
const CLIENTS: u8 = 200;

/// A CPU that has a few clients sets room aside for many: that is no room of those on another.
#[test]
fn as_many_clients_as_the_map_is_said_to_hold_keep_their_endpoints() {
    if !requires::met("affinity", PRIVILEGED) {
        return;
    }
    let usable = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let cpus: Vec<_> = (0..CpuSet::count())
        .filter(|cpu| usable.is_set(*cpu).unwrap())
        .collect();
    let shop = Shop::new().unwrap();
    let one_each = |number: u8| {
        let affinity = "spec:\n  sessionAffinity: ClientIP\n";
        small_service(number, &[1]).replacen("spec:\n", affinity, 1)
    };
    let manifest: String = (1..=CLIENTS).map(one_each).collect();
    let options = AgentOptions {
        arguments: vec![format!("--map-size=AFFINITY={CLIENTS}")],
        ..AgentOptions::default()
    };
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &manifest)]).unwrap();
    let mut pod = Prober::start(&shop.client).unwrap();
    for number in 1..=CLIENTS {
        if number <= 2 {
            // One client on the one CPU, all others on the other.
            keep_on(&pod, cpus[usize::from(number - 1) % cpus.len()]);
        }
        let to = frontend(number, 80);
        let attempt = &pod.send(Transport::Tcp, to, 1).unwrap()[0];
        assert_eq!(attempt.answer_as(to), Ok(http(1)));
    }
    let map = Pinned::open(&agent.pins().path().join("services-v1/AFFINITY")).unwrap();
    let kept = map.keys(size_of::<AffinityKey>()).unwrap();
    assert_eq!(kept.len(), usize::from(CLIENTS));
    agent.terminate().unwrap();
}
