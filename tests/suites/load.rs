//! Every variant of the kernel programs passes the verifier of this kernel. Needs root and BPF.

use proxy_common::names::{MAPS, MapGroup, SOCKET_PROGRAMS};
use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    bpf::Pinned,
    pod::Transport,
    requires::{self, PRIVILEGED},
    shop::{frontend, http, service},
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
        };
        let map = Pinned::open(&agent.pins().path().join(group).join(shape.name)).unwrap();
        let expected = [
            shape.kind,
            shape.key_size,
            shape.value_size,
            shape.entries,
            shape.flags,
        ];
        assert_eq!(map.map_shape().unwrap(), expected, "{}", shape.name);
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
