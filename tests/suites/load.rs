//! Every variant of the kernel programs passes the verifier of this kernel, and what can be asked
//! before an agent serves is answered right. Needs root and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod kernel_clients;
mod verified;

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::TcpStream,
    time::Instant,
};

use proxy_agent::{backend::check::Check, backends};
use proxy_backend::{Given, Settings};
use proxy_common::names::{MAPS, MapGroup, SOCKET_PROGRAMS};
use proxy_model::Protocol;
use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    agent::LIMIT,
    bpf::{Pinned, attach_alone},
    cgroup,
    pod::Transport,
    requires::{self, Need, PRIVILEGED},
    shop::{dns, errno, frontend, frontend6, http, service},
};

const FILE: &str = "cluster.yaml";

#[test]
fn every_program_loads_and_is_attached() {
    if !requires::met("load", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let cluster = service(1, &[1]);
    let options = AgentOptions::default();
    let agent = Agent::start(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    for name in SOCKET_PROGRAMS {
        let link = Pinned::open(&agent.pins().path().join("links").join(name)).unwrap();
        assert_ne!(link.program_id().unwrap(), 0, "{name}");
    }
    // The kernel made the maps as proxy-common says.
    for shape in &MAPS {
        assert!(shape.name.len() <= 15, "{}", shape.name);
        let group = match shape.group {
            MapGroup::Services => "services-v1",
            MapGroup::Flows => "flows-v1",
            MapGroup::Connections => "connections-v1",
        };
        let map = Pinned::open(&agent.pins().path().join(group).join(shape.name)).unwrap();
        let [kind, key_size, value_size, entries, flags] = map.map_shape().unwrap();
        let expected = [shape.kind, shape.key_size, shape.value_size, shape.flags];
        assert_eq!(
            [kind, key_size, value_size, flags],
            expected,
            "{}",
            shape.name
        );
        // What CPUs set aside comes on top, and what a full trie needs to replace an entry.
        let more = entries - shape.entries;
        let expected = shape.gives_way() || shape.is_trie();
        assert_eq!(more > 0, expected, "{}: {entries}", shape.name);
    }
    let refusal = agent.refusal().unwrap();
    assert!(["ECONNREFUSED", "EPERM"].contains(&refusal), "{refusal}");
}

#[test]
fn with_the_kernel_log_the_programs_load_and_tell_what_they_decide() {
    if !requires::met("load", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let cluster = service(1, &[1]);
    let arguments = vec!["--kernel-log".to_owned(), "--log-level=debug".to_owned()];
    let options = AgentOptions {
        arguments,
        ..AgentOptions::default()
    };
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    let attempt = prober
        .send(Transport::Tcp, frontend(1, 80), 1)
        .unwrap()
        .remove(0);
    assert_eq!(attempt.answer, Some(http(1)));
    let line = agent
        .wait_for_line("a line about the connect", |line| {
            line.message().is_some_and(|text| {
                text.contains("10.96.0.1 port 80") && text.contains("10.244.0.1 port 8080")
            })
        })
        .unwrap();
    assert_eq!(line.level(), Some("DEBUG"));

    // The same pins without the log: programs of the other variant take over.
    agent.kill().unwrap();
    agent.options().arguments.clear();
    agent.launch().unwrap();
    let attempt = prober
        .send(Transport::Tcp, frontend(1, 80), 1)
        .unwrap()
        .remove(0);
    assert_eq!(attempt.answer, Some(http(1)));
}

#[test]
fn a_host_that_serves_is_found_usable_and_the_agent_is_not_disturbed() {
    if !requires::met("load", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let cluster = service(1, &[1]);
    let mut agent =
        Agent::start(&shop.world, AgentOptions::default(), &[(FILE, &cluster)]).unwrap();
    let pid = agent.pid().unwrap();
    let before = agent.pins().entries();
    let check = |agent: &Agent<'_>| {
        let mut given = Given::default();
        let cgroup = shop.world.cgroup().path().as_os_str().to_owned();
        given.insert("cgroup-path", vec![cgroup]);
        let settings = Settings {
            pin_dir: agent.pins().path().to_owned(),
            given,
            ..Settings::default()
        };
        Check::run(backends::ALL, &settings)
    };
    let found = check(&agent);
    assert!(found.is_usable(), "{}", found.to_text());
    let requirement = |check: &Check, name: &str| {
        // Those of eBPF, whether or not it is the one that would be used.
        let mut all = check.backends[0].requirements.iter();
        all.find(|one| one.name == name).unwrap().clone()
    };
    let held = requirement(&found, "pin directory").found;
    assert!(held.contains(&pid.to_string()), "{held}");
    let refusal = requirement(&found, "refusal").found;
    assert_eq!(refusal, agent.refusal().unwrap());
    assert_eq!(agent.pins().entries(), before);
    let mut prober = Prober::start(&shop.client).unwrap();
    let to = frontend(1, 80);
    let attempt = &prober.send(Transport::Tcp, to, 1).unwrap()[0];
    assert_eq!(attempt.answer_as(to), Ok(http(1)));

    // Somebody whose program allows no other beside it.
    agent.terminate().unwrap();
    agent.cleanup().unwrap();
    attach_alone(shop.world.cgroup().path()).unwrap();
    let found = check(&agent);
    let why_not = found.backends[0].why_not.as_deref();
    assert_eq!(why_not, Some("this host lacks: socket hooks"));
    let hooks = requirement(&found, "socket hooks");
    assert!(
        !hooks.met && hooks.found.contains("culvert_conn4"),
        "{hooks:?}"
    );
    assert!(hooks.remedy.unwrap().contains("bpftool cgroup show"));
}

#[test]
fn what_is_served_already_is_known_without_an_agent() {
    if !requires::met("load", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let cluster = service(1, &[1]) + &service(2, &[]);
    let options = AgentOptions::default();
    let mut agent = Agent::prepare(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    let pins = agent.pins().path().to_owned();
    let serves = |at, protocol| proxy_backend_ebpf::is_programmed(&pins, at, protocol);
    let (tcp, udp) = (Protocol::Tcp, Protocol::Udp);
    assert!(!serves(frontend(1, 80), tcp), "nothing is pinned");
    agent.launch().unwrap();
    assert!(serves(frontend(1, 80), tcp), "while the agent runs");
    agent.kill().unwrap();
    for (at, protocol, expected) in [
        (frontend(1, 80), tcp, true),
        (frontend6(1, 80), tcp, true),
        (frontend(1, 53), udp, true),
        (frontend(1, 80), udp, false),
        (frontend(1, 53), tcp, false),
        (frontend(1, 81), tcp, false),
        (frontend(2, 80), tcp, false),
        (frontend(3, 80), tcp, false),
        (dns(1), udp, false),
    ] {
        assert_eq!(serves(at, protocol), expected, "{at}/{protocol}");
    }
    // Without the link that leads IPv4 sockets, IPv6 is still served.
    let links = pins.join("links");
    fs::remove_file(links.join("culvert_conn4")).unwrap();
    assert!(!serves(frontend(1, 80), tcp));
    assert!(serves(frontend6(1, 80), tcp));
    // A link that is pinned and attached to nothing.
    Pinned::open(&links.join("culvert_conn6"))
        .unwrap()
        .detach()
        .unwrap();
    assert!(!serves(frontend6(1, 80), tcp));
}

/// What the agent counts.
fn metrics() -> io::Result<String> {
    let mut stream = TcpStream::connect("127.0.0.1:10249")?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map(|_| answer)
}

#[test]
fn the_kernels_own_client_is_left_alone_where_a_refusal_would_be_a_denial() {
    if !requires::met("load", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    // Threads of the kernel are in no cgroup but the root. Nobody else has this Service.
    let options = AgentOptions {
        cgroup_path: Some(cgroup::mount_point().unwrap()),
        ..AgentOptions::default()
    };
    let files = [(FILE, &*service(250, &[]))];
    let agent = Agent::start(&shop.world, options, &files).unwrap();
    let refusal = agent.refusal().unwrap().to_owned();
    // A scrape that comes while the agent has no time to answer is without these.
    let left_alone = || {
        let sample = "culvert_ebpf_rare_events_total{event=\"kernel_left_alone\"} ";
        let started = Instant::now();
        loop {
            let text = shop.world.node().netns().run(metrics).unwrap().unwrap();
            let value = text.lines().find_map(|line| line.strip_prefix(sample));
            if let Some(value) = value {
                return value.parse::<f64>().unwrap();
            }
            assert!(started.elapsed() < LIMIT, "{text}");
        }
    };
    let mut prober = Prober::start(&shop.client).unwrap();
    let to = frontend(250, 80);
    let refused = errno(&mut prober, Transport::Tcp, to).unwrap();
    assert_eq!(refused, Some(refusal.clone()));
    assert!(left_alone() < 1.0, "a process is none of the kernel's");
    if refusal != "EPERM" || !requires::met("load", &[Need::Nfs]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let done = kernel_clients::mount(&shop, directory.path(), to);
    assert_ne!(done.code, Some(0), "{done:?}");
    assert!(left_alone() >= 1.0, "{done:?}");
}
