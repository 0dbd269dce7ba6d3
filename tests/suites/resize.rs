//! Agents that start with maps of another size than those in force. Needs root and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{collections::BTreeSet, net::SocketAddr};

use proxy_common::flow::PEERS;
use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    agent::LogLine,
    bpf::Pinned,
    pod::Transport,
    requires::{self, PRIVILEGED},
    shop::{dns, frontend, http, service, small_service},
};

const FILE: &str = "cluster.yaml";

/// Where an open socket is led; all attempts must agree.
fn endpoint_of(prober: &mut Prober, socket: &str) -> SocketAddr {
    let to = frontend(1, 53);
    let attempts = prober.send_on(socket, Transport::Udp, to, 5).unwrap();
    let answers: BTreeSet<SocketAddr> = attempts
        .iter()
        .map(|attempt| attempt.answer_as(to).unwrap())
        .collect();
    assert_eq!(answers.len(), 1, "{socket} reached {answers:?}");
    *answers.first().unwrap()
}

#[test]
fn a_socket_leaves_an_endpoint_that_went_while_the_maps_were_rebuilt() {
    if !requires::met("resize", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let all: [u8; 4] = [1, 2, 3, 4];
    let options = AgentOptions::default();
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &service(1, &all))]).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    let kept = endpoint_of(&mut prober, "kept");

    // As many endpoints as before: if numbers began anew, the one that the socket remembers would
    // be another endpoint's.
    agent.kill().unwrap();
    let left: Vec<u8> = all
        .into_iter()
        .filter(|number| dns(*number) != kept)
        .chain([5])
        .collect();
    agent.apply(FILE, &service(1, &left)).unwrap();
    agent.options().arguments = vec!["--map-size=SLOTS=5000".to_owned()];
    agent.launch().unwrap();
    assert_eq!(agent.serving().unwrap().flag("adopted"), Some(false));
    let now = endpoint_of(&mut prober, "kept");
    let expected: BTreeSet<SocketAddr> = left.iter().map(|number| dns(*number)).collect();
    assert!(
        expected.contains(&now),
        "{now} is gone, {expected:?} are left"
    );
}

#[test]
fn maps_too_small_for_what_is_served_do_not_replace_those_in_force() {
    if !requires::met("resize", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let two = [small_service(1, &[1]), small_service(2, &[2])].concat();
    let mut agent = Agent::start(&shop.world, AgentOptions::default(), &[(FILE, &two)]).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    agent.terminate().unwrap();

    agent.options().arguments = vec!["--map-size=FRONTENDS=1".to_owned()];
    agent.spawn().unwrap();
    let (code, log) = agent.wait_for_exit().unwrap();
    assert_eq!(code, Some(1), "{log:?}");
    let log = format!("{log:?}");
    assert!(
        log.contains("FRONTENDS") && log.contains("stays as it is"),
        "{log}"
    );
    for number in [1, 2] {
        let to = frontend(number, 80);
        let attempts = prober.send(Transport::Tcp, to, 3).unwrap();
        for attempt in &attempts {
            assert_eq!(attempt.answer_as(to), Ok(http(number)), "Service {number}");
        }
    }
    // The size that fits is adopted as if nothing had happened.
    agent.options().arguments.clear();
    agent.launch().unwrap();
    assert_eq!(agent.serving().unwrap().flag("adopted"), Some(true));
}

#[test]
fn what_came_since_takes_no_room_from_what_is_served() {
    if !requires::met("resize", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let served = [small_service(2, &[2]), small_service(3, &[3])].concat();
    let options = AgentOptions {
        arguments: vec!["--map-size=FRONTENDS=2".to_owned()],
        ..AgentOptions::default()
    };
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &served)]).unwrap();
    // It does not fit, and would come first.
    agent.apply("more.yaml", &small_service(1, &[1])).unwrap();
    agent.wait_for("service not programmed").unwrap();
    agent.terminate().unwrap();
    // Rebuilt, as after an update to another version of the maps.
    agent
        .options()
        .arguments
        .push("--map-size=SLOTS=300000".to_owned());
    agent.launch().unwrap();
    assert_eq!(agent.serving().unwrap().flag("adopted"), Some(false));
    let left_out = agent.wait_for("service not programmed").unwrap();
    assert_eq!(left_out.text("service"), Some("shop/s1:http/TCP/IPv4"));
    let mut prober = Prober::start(&shop.client).unwrap();
    for number in [2, 3] {
        let to = frontend(number, 80);
        let attempt = prober.send(Transport::Tcp, to, 1).unwrap().remove(0);
        assert_eq!(attempt.answer_as(to), Ok(http(number)), "Service {number}");
    }
}

/// The memory of open sockets is not thrown away for a size.
#[test]
fn places_of_sockets_outlive_another_size() {
    if !requires::met("resize", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let options = AgentOptions {
        arguments: vec!["--map-size=PEERS=1000".to_owned()],
        ..AgentOptions::default()
    };
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &service(1, &[1]))]).unwrap();
    let places = |agent: &Agent<'_>| {
        let pin = agent.pins().path().join("flows-v1/PEERS");
        let [_, _, _, entries, _] = Pinned::open(&pin).unwrap().map_shape().unwrap();
        entries
    };
    assert_eq!(places(&agent), 1024);
    let mut prober = Prober::start(&shop.client).unwrap();
    assert_eq!(endpoint_of(&mut prober, "kept"), dns(1));
    agent.kill().unwrap();
    agent.options().arguments.clear();
    agent.launch().unwrap();
    let told = |line: &LogLine| line.raw.contains("map PEERS keeps its size");
    assert!(agent.log().iter().any(told));
    assert_eq!(places(&agent), 1024);
    // What it remembers is still found, and programs agree about where.
    assert_eq!(endpoint_of(&mut prober, "kept"), dns(1));
    assert_eq!(endpoint_of(&mut prober, "new"), dns(1));
    // Without them there is nothing to keep.
    agent.terminate().unwrap();
    agent.cleanup().unwrap();
    agent.launch().unwrap();
    assert_eq!(places(&agent), PEERS);
    assert_eq!(endpoint_of(&mut prober, "newer"), dns(1));
}
