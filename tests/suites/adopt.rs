//! What an agent makes of what an earlier one, a crash or somebody else left under its pins. Needs
//! root and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use proxy_common::names::{MAPS, MapShape};
use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    agent::LogLine,
    bpf::{Pinned, foreign_key},
    pod::Transport,
    requires::{self, PRIVILEGED},
    shop::{self, answers, errno, frontend, frontend6, http, ranged_service, service},
};

const FILE: &str = "cluster.yaml";

fn shape(map: &str) -> &'static MapShape {
    MAPS.iter().find(|shape| shape.name == map).unwrap()
}

/// The Service maps that are no arrays.
fn service_maps() -> impl Iterator<Item = &'static MapShape> {
    MAPS.iter().filter(|shape| shape.is_programmed())
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
fn what_changed_while_no_agent_ran_is_in_force_when_it_serves() {
    if !requires::met("adopt", PRIVILEGED) {
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
        answers(&mut prober, Transport::Tcp, to).unwrap(),
        [http(1), http(2)].into()
    );
    agent.launch().unwrap();
    assert_eq!(
        answers(&mut prober, Transport::Tcp, to).unwrap(),
        [http(2), http(5)].into()
    );
    let refusal = agent.refusal().unwrap().to_owned();
    for (number, port, transport) in [
        (2, 80, Transport::Tcp),
        (2, 53, Transport::Udp),
        (2, 53, Transport::UdpConnected),
    ] {
        let gone = errno(&mut prober, transport, frontend(number, port)).unwrap();
        assert_eq!(gone.as_deref(), Some("ENETUNREACH"), "{transport}");
        let empty = errno(&mut prober, transport, frontend(3, port)).unwrap();
        assert_eq!(empty.as_ref(), Some(&refusal), "{transport}");
    }
    assert_eq!(
        answers(&mut prober, Transport::Tcp, frontend(4, 80)).unwrap(),
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
    if !requires::met("adopt", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let ranges = "203.0.113.0/24, 198.51.100.0/25, \"2001:db8::/32\"";
    let cluster = [service(1, &[1, 2, 3]), ranged_service(2, &[4], ranges)].concat();
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
        let key = foreign_key(shape.key_size as usize, shape.is_trie());
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
        answers(&mut prober, Transport::Tcp, frontend(1, 80)).unwrap(),
        expected
    );
    let expected: BTreeSet<_> = [1, 2, 3].map(shop::dns).into();
    assert_eq!(
        answers(&mut prober, Transport::Udp, frontend(1, 53)).unwrap(),
        expected
    );
    let expected: BTreeSet<_> = [1, 2, 3].map(shop::dns6).into();
    assert_eq!(
        answers(&mut prober, Transport::Udp, frontend6(1, 53)).unwrap(),
        expected
    );
    assert_eq!(
        answers(&mut prober, Transport::Tcp, frontend(2, 80)).unwrap(),
        [http(4)].into()
    );
    let nobody = errno(&mut prober, Transport::Tcp, frontend(9, 80)).unwrap();
    assert_eq!(nobody.as_deref(), Some("ENETUNREACH"));
    assert_eq!(counts(&agent), before);
}

#[test]
fn a_link_to_another_or_a_deleted_cgroup_is_replaced() {
    if !requires::met("adopt", PRIVILEGED) {
        return;
    }
    let (first, second) = (Shop::new().unwrap(), Shop::new().unwrap());
    let cluster = service(1, &[1]);
    let options = AgentOptions::default();
    let mut agent = Agent::start(&first.world, options, &[(FILE, &cluster)]).unwrap();
    let to = frontend(1, 80);
    let mut here = Prober::start(&first.client).unwrap();
    let mut there = Prober::start(&second.client).unwrap();
    assert_eq!(
        answers(&mut here, Transport::Tcp, to).unwrap(),
        [http(1)].into()
    );
    assert_eq!(
        errno(&mut there, Transport::Tcp, to).unwrap().as_deref(),
        Some("ENETUNREACH")
    );

    agent.terminate().unwrap();
    agent.move_to(&second.world);
    agent.launch().unwrap();
    assert_eq!(
        answers(&mut there, Transport::Tcp, to).unwrap(),
        [http(1)].into()
    );
    assert_eq!(
        errno(&mut here, Transport::Tcp, to).unwrap().as_deref(),
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
    assert_eq!(
        answers(&mut prober, Transport::Tcp, to).unwrap(),
        [http(1)].into()
    );
}

#[test]
fn links_of_another_version_or_of_a_crash_are_detached() {
    if !requires::met("adopt", PRIVILEGED) {
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
    assert_eq!(
        answers(&mut prober, Transport::Tcp, to).unwrap(),
        [http(1)].into()
    );
}

/// A link that is pinned under the name of a program for another hook: with our program in it, that
/// would run where it does not belong.
#[test]
fn a_link_on_another_hook_is_replaced() {
    if !requires::met("adopt", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let options = AgentOptions::default();
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &service(1, &[1]))]).unwrap();
    agent.kill().unwrap();
    let links = agent.pins().path().join("links");
    let [four, six, aside] =
        ["culvert_conn4", "culvert_conn6", "aside"].map(|name| links.join(name));
    fs::rename(&four, &aside).unwrap();
    fs::rename(&six, &four).unwrap();
    fs::rename(&aside, &six).unwrap();
    agent.launch().unwrap();
    assert_eq!(
        agent.serving().unwrap().number("programs_attached"),
        Some(2)
    );
    let mut prober = Prober::start(&shop.client).unwrap();
    for to in [frontend(1, 80), frontend6(1, 80)] {
        let attempts = prober.send(Transport::Tcp, to, 5).unwrap();
        assert!(
            attempts.iter().all(|one| one.answer_as(to).is_ok()),
            "{attempts:?}"
        );
    }
}

#[test]
fn what_others_pinned_in_the_same_directory_stays() {
    if !requires::met("adopt", PRIVILEGED) {
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
