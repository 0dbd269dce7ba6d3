//! An agent that ends, however it ends, and starts again: clients must not notice. Needs root
//! and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    time::Duration,
};

use proxy_common::names::{MAPS, MapGroup, MapShape};
use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    agent::LogLine,
    bpf::Pinned,
    pod::{Load, LoadReport, Transport},
    requires::{self, PRIVILEGED},
    shop::{self, frontend, frontend6, http, service},
};

const FILE: &str = "cluster.yaml";

/// Loads over every kind of socket, new ones and kept ones.
const LOADS: [(&str, Transport, bool, bool); 7] = [
    ("http", Transport::Http, false, false),
    ("tcp-mapped", Transport::TcpMapped, false, false),
    ("tcp6-kept", Transport::Tcp, true, true),
    ("udp", Transport::Udp, false, false),
    ("udp-kept", Transport::Udp, true, false),
    ("udp6-connected", Transport::UdpConnected, false, true),
    ("udp-mapped-kept", Transport::UdpMapped, true, false),
];

fn start_loads(prober: &mut Prober, number: u8) {
    for (name, transport, keep, v6) in LOADS {
        let port = if transport.is_udp() { 53 } else { 80 };
        let to = if v6 {
            frontend6(number, port)
        } else {
            frontend(number, port)
        };
        let (name, pause) = (name.to_owned(), Duration::from_micros(500));
        prober
            .load_start(Load {
                name,
                transport,
                to,
                threads: 1,
                pause,
                keep,
            })
            .unwrap();
    }
}

/// Waits until each load has gone on for a while; none may have failed.
fn assert_loads_go_on(prober: &mut Prober, when: &str) {
    for (name, ..) in LOADS {
        assert_no_failure(&prober.load_wait(name, 25).unwrap(), name, when);
    }
}

fn stop_loads(prober: &mut Prober) {
    for (name, ..) in LOADS {
        assert_no_failure(&prober.load_stop(name).unwrap(), name, "at the end");
    }
}

fn assert_no_failure(report: &LoadReport, load: &str, when: &str) {
    assert!(report.failures.is_empty(), "{when}, {load}: {report:?}");
    assert!(report.answered > 0, "{when}, {load}: {report:?}");
}

/// Which endpoints answer; every attempt must be answered as `to`.
fn answers(prober: &mut Prober, transport: Transport, to: SocketAddr) -> BTreeSet<SocketAddr> {
    let attempts = prober.send(transport, to, 60).unwrap();
    attempts
        .iter()
        .map(|attempt| attempt.answer_as(to).unwrap())
        .collect()
}

fn errno(prober: &mut Prober, transport: Transport, to: SocketAddr) -> Option<String> {
    prober.send(transport, to, 1).unwrap()[0]
        .errno()
        .map(str::to_owned)
}

fn shape(map: &str) -> &'static MapShape {
    MAPS.iter().find(|shape| shape.name == map).unwrap()
}

/// The Service maps that are no arrays.
fn service_maps() -> impl Iterator<Item = &'static MapShape> {
    MAPS.iter()
        .filter(|shape| shape.group == MapGroup::Services && shape.sizable)
}

fn service_map(agent: &Agent<'_>, map: &str) -> Pinned {
    Pinned::open(&agent.pins().path().join("services-v1").join(map)).unwrap()
}

/// How many entries each Service map has.
fn counts(agent: &Agent<'_>) -> BTreeMap<&'static str, usize> {
    let count = |shape: &MapShape| {
        service_map(agent, shape.name)
            .keys(shape.key_size as usize)
            .unwrap()
            .len()
    };
    service_maps()
        .map(|shape| (shape.name, count(shape)))
        .collect()
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
    let mut prober = Prober::start(&shop.client).unwrap();
    start_loads(&mut prober, 1);
    for round in 0..6 {
        let how = if round % 2 == 0 { "SIGKILL" } else { "SIGTERM" };
        if how == "SIGKILL" {
            agent.kill()
        } else {
            agent.terminate()
        }
        .unwrap();
        assert_loads_go_on(
            &mut prober,
            &format!("round {round}, without an agent after {how}"),
        );
        agent.launch().unwrap();
        assert_eq!(
            agent.serving().unwrap().flag("adopted"),
            Some(true),
            "after {how}"
        );
        assert_loads_go_on(
            &mut prober,
            &format!("round {round}, restarted after {how}"),
        );
    }
    // Killed again and again while it starts, at whatever it is just doing.
    agent.kill().unwrap();
    for requests in [0, 5, 10, 15, 20, 25, 30, 40, 60, 80] {
        agent.spawn().unwrap();
        prober.load_wait("http", requests).unwrap();
        agent.kill().unwrap();
    }
    assert_loads_go_on(&mut prober, "killed while starting");
    agent.launch().unwrap();
    assert_loads_go_on(&mut prober, "restarted for good");
    stop_loads(&mut prober);
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
    let mut prober = Prober::start(&shop.client).unwrap();
    start_loads(&mut prober, 1);
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
        assert_loads_go_on(&mut prober, &when);
        let expected = endpoints.iter().map(|number| http(*number)).collect();
        assert_eq!(
            answers(&mut prober, Transport::Tcp, frontend(1, 80)),
            expected,
            "{when}"
        );
    }
    stop_loads(&mut prober);
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
fn what_changed_while_no_agent_ran_is_in_force_when_it_serves() {
    if !requires::met("restart", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let cluster = [service(1, &[1, 2]), service(2, &[3]), service(3, &[4])].concat();
    let options = AgentOptions::default();
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    agent.kill().unwrap();
    // s1 loses an endpoint and gets another, s2 is deleted, s3 loses all, s4 is new.
    let cluster = [service(1, &[2, 5]), service(3, &[]), service(4, &[6])].concat();
    agent.apply(FILE, &cluster).unwrap();
    let to = frontend(1, 80);
    assert_eq!(
        answers(&mut prober, Transport::Tcp, to),
        [http(1), http(2)].into()
    );
    agent.launch().unwrap();
    assert_eq!(
        answers(&mut prober, Transport::Tcp, to),
        [http(2), http(5)].into()
    );
    let refusal = agent.refusal().unwrap().to_owned();
    for (number, port, transport) in [
        (2, 80, Transport::Tcp),
        (2, 53, Transport::Udp),
        (2, 53, Transport::UdpConnected),
    ] {
        let gone = errno(&mut prober, transport, frontend(number, port));
        assert_eq!(gone.as_deref(), Some("ENETUNREACH"), "{transport}");
        let empty = errno(&mut prober, transport, frontend(3, port));
        assert_eq!(empty.as_ref(), Some(&refusal), "{transport}");
    }
    assert_eq!(
        answers(&mut prober, Transport::Tcp, frontend(4, 80)),
        [http(6)].into()
    );
    // Nothing is left of what is gone: an agent that starts from nothing has as much in its maps.
    let before = counts(&agent);
    let mut other =
        Agent::prepare(&shop.world, AgentOptions::default(), &[(FILE, &cluster)]).unwrap();
    agent.terminate().unwrap();
    agent.cleanup().unwrap();
    other.launch().unwrap();
    assert_eq!(before, counts(&other));
}

#[test]
fn what_a_crash_between_two_writes_leaves_is_repaired() {
    if !requires::met("restart", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let cluster = [service(1, &[1, 2, 3]), service(2, &[4])].concat();
    let options = AgentOptions::default();
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    let before = counts(&agent);
    agent.kill().unwrap();

    // A frontend that leads where others lead, and an entry in each map that nothing leads to: as
    // if the agent had died while it removed a Service.
    let frontends = service_map(&agent, "FRONTENDS");
    let size = shape("FRONTENDS").key_size as usize;
    let (from, to) = ([10, 96, 0, 1], [10, 96, 0, 9]);
    let mut orphans = 0;
    for key in frontends.keys(size).unwrap() {
        let Some(at) = key.windows(4).position(|window| window == from) else {
            continue;
        };
        let value = frontends
            .read(&key, shape("FRONTENDS").value_size as usize)
            .unwrap();
        let orphan = [&key[..at], &to, &key[at + 4..]].concat();
        frontends.write(&orphan, &value).unwrap();
        orphans += 1;
    }
    assert_eq!(orphans, 2, "one frontend for each port");
    for shape in service_maps() {
        let key = vec![0x3d; shape.key_size as usize];
        let value = vec![0x3d; shape.value_size as usize];
        service_map(&agent, shape.name).write(&key, &value).unwrap();
    }
    // Holes in what is in use. A crash between two writes makes none, but repair must not depend
    // on how the damage came about.
    for shape in service_maps().filter(|shape| shape.name != "SERVICES") {
        let map = service_map(&agent, shape.name);
        map.delete_some(shape.key_size as usize, 2).unwrap();
    }

    agent.launch().unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    let expected: BTreeSet<_> = [1, 2, 3].map(http).into();
    assert_eq!(
        answers(&mut prober, Transport::Tcp, frontend(1, 80)),
        expected
    );
    let expected: BTreeSet<_> = [1, 2, 3].map(shop::dns).into();
    assert_eq!(
        answers(&mut prober, Transport::Udp, frontend(1, 53)),
        expected
    );
    let expected: BTreeSet<_> = [1, 2, 3].map(shop::dns6).into();
    assert_eq!(
        answers(&mut prober, Transport::Udp, frontend6(1, 53)),
        expected
    );
    assert_eq!(
        answers(&mut prober, Transport::Tcp, frontend(2, 80)),
        [http(4)].into()
    );
    let nobody = errno(&mut prober, Transport::Tcp, frontend(9, 80));
    assert_eq!(nobody.as_deref(), Some("ENETUNREACH"));
    assert_eq!(counts(&agent), before);
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
    let mut prober = Prober::start(&shop.client).unwrap();
    start_loads(&mut prober, 1);
    let services = agent.pins().path().join("services-v1");

    // Another size.
    agent.kill().unwrap();
    agent.options().arguments = vec!["--map-size=SLOTS=5000".into(), "--map-size=SETS=900".into()];
    agent.launch().unwrap();
    assert_eq!(agent.serving().unwrap().flag("adopted"), Some(false));
    assert_loads_go_on(&mut prober, "another size");

    // Another key size under a known name.
    agent.kill().unwrap();
    let [sets, slots, aside] = ["SETS", "SLOTS", "aside"].map(|name| services.join(name));
    fs::rename(&sets, &aside).unwrap();
    fs::rename(&slots, &sets).unwrap();
    fs::rename(&aside, &slots).unwrap();
    agent.launch().unwrap();
    assert_loads_go_on(&mut prober, "another key size");

    // Pins of another ABI version, older or newer.
    for version in ["services-v0", "services-v77"] {
        agent.kill().unwrap();
        fs::rename(&services, agent.pins().path().join(version)).unwrap();
        assert_loads_go_on(&mut prober, "without an agent");
        agent.launch().unwrap();
        assert_eq!(agent.serving().unwrap().flag("adopted"), Some(false));
        assert_loads_go_on(&mut prober, version);
        let left: Vec<_> = agent.pins().entries();
        assert!(
            !left.iter().any(|path| path.starts_with(version)),
            "{left:?}"
        );
    }
    assert_eq!(
        answers(&mut prober, Transport::Tcp, frontend(2, 80)),
        [http(4)].into()
    );
    stop_loads(&mut prober);
}

#[test]
fn a_link_to_another_or_a_deleted_cgroup_is_replaced() {
    if !requires::met("restart", PRIVILEGED) {
        return;
    }
    let (first, second) = (Shop::new().unwrap(), Shop::new().unwrap());
    let cluster = service(1, &[1]);
    let options = AgentOptions::default();
    let mut agent = Agent::start(&first.world, options, &[(FILE, &cluster)]).unwrap();
    let to = frontend(1, 80);
    let mut here = Prober::start(&first.client).unwrap();
    let mut there = Prober::start(&second.client).unwrap();
    assert_eq!(answers(&mut here, Transport::Tcp, to), [http(1)].into());
    assert_eq!(
        errno(&mut there, Transport::Tcp, to).as_deref(),
        Some("ENETUNREACH")
    );

    agent.terminate().unwrap();
    agent.move_to(&second.world);
    agent.launch().unwrap();
    assert_eq!(answers(&mut there, Transport::Tcp, to), [http(1)].into());
    assert_eq!(
        errno(&mut here, Transport::Tcp, to).as_deref(),
        Some("ENETUNREACH")
    );

    // The link stays pinned when its cgroup is deleted, and does nothing.
    let third = Shop::new().unwrap();
    let mut agent =
        Agent::prepare(&third.world, AgentOptions::default(), &[(FILE, &cluster)]).unwrap();
    let doomed = Shop::new().unwrap();
    agent.options().cgroup_path = Some(doomed.world.cgroup().path().to_owned());
    agent.launch().unwrap();
    agent.kill().unwrap();
    drop(doomed);
    agent.options().cgroup_path = None;
    agent.launch().unwrap();
    let mut prober = Prober::start(&third.client).unwrap();
    assert_eq!(answers(&mut prober, Transport::Tcp, to), [http(1)].into());
}

#[test]
fn links_of_another_version_or_of_a_crash_are_detached() {
    if !requires::met("restart", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let cluster = service(1, &[1]);
    let options = AgentOptions::default();
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    agent.kill().unwrap();
    let links = agent.pins().path().join("links");
    let expected = agent.pins().entries();
    let stale = [
        ("culvert_conn4", "culvert_older"),
        ("culvert_peer4", "culvert_peer4-next"),
    ]
    .map(|(name, stale)| {
        let stale = links.join(stale);
        fs::rename(links.join(name), &stale).unwrap();
        // Open, it stays a link, but one that leads nowhere once it is detached.
        Pinned::open(&stale).unwrap()
    });
    assert!(stale.iter().all(|link| link.cgroup_id().unwrap() != 0));
    agent.launch().unwrap();
    assert_eq!(agent.pins().entries(), expected);
    assert!(stale.iter().all(|link| link.cgroup_id().unwrap() == 0));
    let mut prober = Prober::start(&shop.client).unwrap();
    let to = frontend(1, 80);
    assert_eq!(answers(&mut prober, Transport::Tcp, to), [http(1)].into());
}

#[test]
fn what_others_pinned_in_the_same_directory_stays() {
    if !requires::met("restart", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let cluster = service(1, &[1]);
    let options = AgentOptions::default();
    let mut agent = Agent::prepare(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    let pins = agent.pins().path().to_owned();
    let stays = [
        "flows-v0-next",
        "maps/inner",
        "services-v0/inner",
        "services-v1x",
    ];
    let goes = ["flows-v0", "services-v0-old", "services-v77-next"];
    for path in stays.iter().chain(&goes) {
        fs::create_dir_all(pins.join(path)).unwrap();
    }
    agent.launch().unwrap();
    for path in stays {
        assert!(pins.join(path).exists(), "{path}");
    }
    for path in goes {
        assert!(!pins.join(path).exists(), "{path}");
    }
    // What could not be removed is told, and stops nobody.
    let inner = pins.join("services-v0/inner").display().to_string();
    let told = |line: &LogLine| {
        line.text("reason")
            .is_some_and(|text| text.contains(&inner))
    };
    assert!(agent.log().iter().any(told), "{:?}", agent.log());

    for path in stays {
        let path = pins.join(path);
        fs::remove_dir(&path).unwrap();
        if path.ends_with("inner") {
            fs::remove_dir(path.parent().unwrap()).unwrap();
        }
    }
}
