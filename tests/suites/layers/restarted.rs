//! An agent of two layers that ends, in the middle of whatever it does, and starts again: both layers
//! are adopted, and nobody notices.

use std::net::SocketAddr;

use proxy_tests::{
    Agent, Prober, Shop,
    emulated::is_emulated,
    pod::Transport,
    shop::{frontend, http, service, small_service},
};

use super::rig::{
    ABOVE, BENEATH, answer, assert_whole, can_run, from, from_the_node, from_the_pod, options,
    prober, serving,
};

const FILE: &str = "cluster.yaml";
/// Services that change; traffic goes to another one.
const CHANGING: std::ops::RangeInclusive<u8> = 2..=40;

fn changing(round: u8) -> String {
    let services = CHANGING.map(|number| small_service(number, &[(number + round) % 8 + 1]));
    services.collect()
}

#[test]
fn an_agent_killed_in_the_middle_of_changes_is_followed_by_one_that_adopts_both_layers() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [
        (FILE, &*service(1, &[1, 2, 3])),
        ("changing.yaml", &*changing(0)),
    ];
    let mut agent = Agent::start(&shop.world, options(&[]), &files).unwrap();
    let (mut pod, mut node) = (from_the_pod(&shop), from_the_node(&shop));
    let place = shop.world.unseen(&shop.client).unwrap();
    let mut unseen = from(&place);
    let mut last = 0;
    // Requests are the clock: one takes less than a millisecond.
    for (round, requests) in (1..).zip([0, 20, 45, 70, 95, 120, 150]) {
        agent.apply("changing.yaml", &changing(round)).unwrap();
        pod.prober.load_wait("http", requests).unwrap();
        agent.kill().unwrap();
        last = round;
        let when = format!("killed in round {round}");
        pod.goes_on(&when).unwrap();
        unseen.goes_on(&when).unwrap();
        agent.spawn().unwrap();
        for layer in [BENEATH, ABOVE] {
            let serving = serving(&mut agent, layer);
            assert_eq!(serving.flag("adopted"), Some(true), "{layer}, {when}");
        }
    }
    // Again and again while it starts, with one layer or the other just adopted.
    agent.kill().unwrap();
    for requests in [0, 15, 30, 45, 60, 90, 120] {
        agent.spawn().unwrap();
        pod.prober.load_wait("http", requests).unwrap();
        agent.kill().unwrap();
    }
    agent.launch().unwrap();
    node.goes_on("restarted for good").unwrap();
    let mut single = [Prober::start(&shop.client).unwrap(), prober(&place)];
    for prober in &mut single {
        for number in CHANGING {
            let endpoint = http((number + last) % 8 + 1);
            assert_eq!(answer(prober, frontend(number, 80)), endpoint, "{number}");
        }
    }
    for traffic in [pod, node, unseen] {
        traffic.stop().unwrap();
    }
    assert_whole(&shop, &agent);
}

/// Connections of each kind, at each client.
const HELD: [(&str, Transport, u16, usize); 2] = [
    ("tcp", Transport::Tcp, 80, 2000),
    ("udp", Transport::UdpConnected, 53, 3000),
];

/// Where processors are emulated it is a tenth of them.
fn held() -> [(&'static str, Transport, u16, usize); 2] {
    let share = if is_emulated() { 10 } else { 1 };
    HELD.map(|(name, transport, port, count)| (name, transport, port, count / share))
}

/// Uses each connection once, and says who answers. The first time opens them.
fn use_all(prober: &mut Prober) -> Vec<SocketAddr> {
    let mut answers = Vec::new();
    for (name, transport, port, count) in held() {
        let to = frontend(1, port);
        for number in 0..count {
            let socket = format!("{name}{number}");
            let attempts = prober.send_on(&socket, transport, to, 1).unwrap();
            answers.push(attempts[0].answer_as(to).unwrap());
        }
    }
    answers
}

#[test]
fn ten_thousand_connections_through_both_layers_outlive_restarts() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*service(1, &[1, 2, 3, 4, 5, 6, 7, 8]))];
    let mut agent = Agent::start(&shop.world, options(&[]), &files).unwrap();
    let place = shop.world.unseen(&shop.client).unwrap();
    let mut clients = [Prober::start(&shop.client).unwrap(), prober(&place)];
    let mut all = || clients.each_mut().map(use_all);
    let before = all();
    let count: usize = held().iter().map(|(_, _, _, count)| count).sum();
    assert_eq!(before.each_ref().map(Vec::len), [count; 2]);
    agent.kill().unwrap();
    assert_eq!(all(), before, "without an agent");
    agent.spawn().unwrap();
    assert_eq!(all(), before, "while it starts");
    agent.wait_until_served().unwrap();
    assert_eq!(all(), before, "after a kill");
    agent.terminate().unwrap();
    // What is added meanwhile is nothing to them.
    agent.apply("more.yaml", &changing(0)).unwrap();
    agent.launch().unwrap();
    assert_eq!(all(), before, "after a restart in order");
    assert_whole(&shop, &agent);
}
