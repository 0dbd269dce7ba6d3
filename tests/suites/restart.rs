//! An agent that ends, however it ends, and starts again: clients must not notice. Needs root
//! and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{collections::BTreeSet, fs, net::SocketAddr};

use proxy_tests::{
    Agent, AgentOptions, Prober, Shop, Traffic,
    pod::Transport,
    requires::{self, PRIVILEGED},
    shop::{LoadKind, answers, frontend, frontend6, http, loads, service},
};

const FILE: &str = "cluster.yaml";

/// Loads over every kind of socket, new ones and kept ones.
const LOADS: [LoadKind; 7] = [
    ("http", Transport::Http, false, false),
    ("tcp-mapped", Transport::TcpMapped, false, false),
    ("tcp6-kept", Transport::Tcp, true, true),
    ("udp", Transport::Udp, false, false),
    ("udp-kept", Transport::Udp, true, false),
    ("udp6-connected", Transport::UdpConnected, false, true),
    ("udp-mapped-kept", Transport::UdpMapped, true, false),
];

fn traffic(shop: &Shop) -> Traffic {
    Traffic::start("pod", &shop.client, loads(1, &LOADS)).unwrap()
}

#[test]
fn no_request_fails_while_the_agent_is_killed_and_restarted() {
    if !requires::met("restart", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let cluster = service(1, &[1, 2, 3]);
    let options = AgentOptions::default();
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    assert_eq!(agent.serving().unwrap().flag("adopted"), Some(false));
    let mut traffic = traffic(&shop);
    for round in 0..6 {
        let how = if round % 2 == 0 { "SIGKILL" } else { "SIGTERM" };
        if how == "SIGKILL" {
            agent.kill()
        } else {
            agent.terminate().map(drop)
        }
        .unwrap();
        traffic
            .goes_on(&format!("round {round}, without an agent after {how}"))
            .unwrap();
        agent.launch().unwrap();
        assert_eq!(
            agent.serving().unwrap().flag("adopted"),
            Some(true),
            "after {how}"
        );
        traffic
            .goes_on(&format!("round {round}, restarted after {how}"))
            .unwrap();
    }
    // Killed again and again while it starts, at whatever it is just doing.
    agent.kill().unwrap();
    for requests in [0, 5, 10, 15, 20, 25, 30, 40, 60, 80] {
        agent.spawn().unwrap();
        traffic.prober.load_wait("http", requests).unwrap();
        agent.kill().unwrap();
    }
    traffic.goes_on("killed while starting").unwrap();
    agent.launch().unwrap();
    traffic.goes_on("restarted for good").unwrap();
    traffic.stop().unwrap();
}

#[test]
fn no_request_fails_while_endpoints_are_replaced() {
    if !requires::met("restart", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let options = AgentOptions::default();
    let cluster = service(1, &[1, 2]);
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    let mut traffic = traffic(&shop);
    for endpoints in [
        &[2, 3][..],
        &[3, 4],
        &[4],
        &[1, 2, 3, 4, 5, 6, 7, 8],
        &[8],
        &[1, 2],
    ] {
        agent.apply_and_sync(FILE, &service(1, endpoints)).unwrap();
        let when = format!("endpoints {endpoints:?}");
        traffic.goes_on(&when).unwrap();
        let expected = endpoints.iter().map(|number| http(*number)).collect();
        assert_eq!(
            answers(&mut traffic.prober, Transport::Tcp, frontend(1, 80)).unwrap(),
            expected,
            "{when}"
        );
    }
    traffic.stop().unwrap();
}

#[test]
fn open_sockets_keep_their_endpoint_and_what_they_show() {
    if !requires::met("restart", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let cluster = service(1, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let options = AgentOptions::default();
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    let sockets = [
        ("tcp", Transport::Tcp, frontend(1, 80)),
        ("tcp-mapped", Transport::TcpMapped, frontend(1, 80)),
        ("tcp6", Transport::Tcp, frontend6(1, 80)),
        ("udp", Transport::Udp, frontend(1, 53)),
        ("udp-mapped", Transport::UdpMapped, frontend(1, 53)),
        ("udp6", Transport::Udp, frontend6(1, 53)),
        ("udp-connected", Transport::UdpConnected, frontend(1, 53)),
        ("udp6-connected", Transport::UdpConnected, frontend6(1, 53)),
    ];
    let mut ask = |when: &str| -> Vec<SocketAddr> {
        let one = |(name, transport, to): &(&str, Transport, SocketAddr)| {
            let attempts = prober.send_on(name, *transport, *to, 4).unwrap();
            let answers: BTreeSet<_> = attempts
                .iter()
                .map(|attempt| {
                    attempt
                        .answer_as(*to)
                        .map_err(|error| format!("{when}: {error}"))
                })
                .collect::<Result<_, _>>()
                .unwrap();
            assert_eq!(answers.len(), 1, "{when}: {name} reached {answers:?}");
            *answers.first().unwrap()
        };
        sockets.iter().map(one).collect()
    };
    let before = ask("before");
    agent.kill().unwrap();
    assert_eq!(ask("without an agent"), before);
    agent.launch().unwrap();
    assert_eq!(ask("after the restart"), before);
    // Numbers of endpoints that stay are the same in the new agent: nothing is picked again when
    // it changes the set.
    let cluster = service(1, &[1, 2, 3, 4, 5, 6, 7, 8]) + &service(2, &[1]);
    agent.apply_and_sync(FILE, &cluster).unwrap();
    assert_eq!(ask("after a change"), before);
}

#[test]
fn maps_of_another_shape_are_rebuilt_and_no_request_fails() {
    if !requires::met("restart", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let cluster = [service(1, &[1, 2, 3]), service(2, &[4])].concat();
    let options = AgentOptions::default();
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    let mut traffic = traffic(&shop);
    let services = agent.pins().path().join("services-v1");

    // Another size.
    agent.kill().unwrap();
    agent.options().arguments = vec!["--map-size=SLOTS=5000".into(), "--map-size=SETS=900".into()];
    agent.launch().unwrap();
    assert_eq!(agent.serving().unwrap().flag("adopted"), Some(false));
    traffic.goes_on("another size").unwrap();

    // Another key size under a known name.
    agent.kill().unwrap();
    let [sets, slots, aside] = ["SETS", "SLOTS", "aside"].map(|name| services.join(name));
    fs::rename(&sets, &aside).unwrap();
    fs::rename(&slots, &sets).unwrap();
    fs::rename(&aside, &slots).unwrap();
    agent.launch().unwrap();
    traffic.goes_on("another key size").unwrap();

    // Pins of another ABI version, older or newer.
    for version in ["services-v0", "services-v77"] {
        agent.kill().unwrap();
        fs::rename(&services, agent.pins().path().join(version)).unwrap();
        traffic.goes_on("without an agent").unwrap();
        agent.launch().unwrap();
        assert_eq!(agent.serving().unwrap().flag("adopted"), Some(false));
        traffic.goes_on(version).unwrap();
        let left: Vec<_> = agent.pins().entries();
        assert!(
            !left.iter().any(|path| path.starts_with(version)),
            "{left:?}"
        );
    }
    assert_eq!(
        answers(&mut traffic.prober, Transport::Tcp, frontend(2, 80)).unwrap(),
        [http(4)].into()
    );
    traffic.stop().unwrap();
}
