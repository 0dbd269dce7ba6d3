//! What an agent leaves on purpose, and that `cleanup` removes all of it. Needs root and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use proxy_common::names::{MAPS, MapGroup, SOCKET_PROGRAMS};
use proxy_tests::{
    Agent, AgentOptions, Prober, Shop, agent,
    bpf::{self, Pinned},
    pod::Transport,
    requires::{self, PRIVILEGED},
    shop::{frontend, http, service},
};

const FILE: &str = "cluster.yaml";

/// The kernel frees BPF objects a moment after the last user is gone, and tells nobody.
fn assert_freed(what: &str, id: u32, exists: fn(u32) -> Result<bool>) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while exists(id).unwrap() {
        assert!(Instant::now() < deadline, "{what} {id} is still there");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn cleanup_removes_programs_maps_and_pins() {
    if !requires::met("cleanup", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let cluster = service(1, &[1]);
    let options = AgentOptions::default();
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    let to = frontend(1, 80);
    agent.terminate().unwrap();

    // The dataplane outlives the agent: that is what SIGTERM promises.
    let attempt = prober
        .send_on("open", Transport::Tcp, to, 1)
        .unwrap()
        .remove(0);
    assert_eq!(attempt.answer_as(to), Ok(http(1)));
    let pins = agent.pins().path();
    let programs = SOCKET_PROGRAMS.map(|name| {
        Pinned::open(&pins.join("links").join(name))
            .unwrap()
            .program_id()
            .unwrap()
    });
    let maps = MAPS.map(|shape| {
        let group = match shape.group {
            MapGroup::Services => "services-v1",
            MapGroup::Flows => "flows-v1",
        };
        Pinned::open(&pins.join(group).join(shape.name))
            .unwrap()
            .map_id()
            .unwrap()
    });
    assert!(programs.iter().all(|id| bpf::program_exists(*id).unwrap()));
    assert!(maps.iter().all(|id| bpf::map_exists(*id).unwrap()));

    agent.cleanup().unwrap();
    assert!(!pins.exists());
    for (transport, port) in [
        (Transport::Tcp, 80),
        (Transport::Udp, 53),
        (Transport::UdpConnected, 53),
    ] {
        let attempt = prober
            .send(transport, frontend(1, port), 1)
            .unwrap()
            .remove(0);
        assert_eq!(attempt.errno(), Some("ENETUNREACH"), "{transport}");
    }
    // A connection that exists goes on, to the endpoint it always had.
    let attempt = prober
        .send_on("open", Transport::Tcp, to, 1)
        .unwrap()
        .remove(0);
    assert_eq!(attempt.answer, Some(http(1)));
    for id in programs {
        assert_freed("program", id, bpf::program_exists);
    }
    for id in maps {
        assert_freed("map", id, bpf::map_exists);
    }

    // Nothing is there any more, which is no error, and the next start begins anew.
    agent.cleanup().unwrap();
    agent.launch().unwrap();
    assert_eq!(agent.serving().unwrap().flag("adopted"), Some(false));
    let attempt = prober.send(Transport::Tcp, to, 1).unwrap().remove(0);
    assert_eq!(attempt.answer_as(to), Ok(http(1)));
}

#[test]
fn cleanup_refuses_while_an_agent_runs() {
    if !requires::met("cleanup", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let cluster = service(1, &[1]);
    let options = AgentOptions::default();
    let agent = Agent::start(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    let pins = agent.pins().path();
    let done = agent::run(&["cleanup".as_ref(), "--pin-dir".as_ref(), pins.as_os_str()]).unwrap();
    assert_eq!(done.code, Some(4), "{done:?}");
    assert!(
        done.stderr.contains(&pins.display().to_string()),
        "{done:?}"
    );
    let mut prober = Prober::start(&shop.client).unwrap();
    let attempt = prober
        .send(Transport::Tcp, frontend(1, 80), 1)
        .unwrap()
        .remove(0);
    assert_eq!(attempt.answer, Some(http(1)));
}

#[test]
fn cleanup_removes_what_a_crash_left_half_made() {
    if !requires::met("cleanup", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let cluster = service(1, &[1]);
    let options = AgentOptions::default();
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    agent.kill().unwrap();
    // As after a death in the middle of a first attach, of a rebuild, and of another version.
    let pins = agent.pins().path();
    let link = pins.join("links").join(SOCKET_PROGRAMS[0]);
    std::fs::rename(
        &link,
        link.with_file_name(format!("{}-next", SOCKET_PROGRAMS[0])),
    )
    .unwrap();
    std::fs::rename(pins.join("flows-v1"), pins.join("services-v1-next")).unwrap();
    std::fs::create_dir(pins.join("services-v0")).unwrap();
    agent.cleanup().unwrap();
}
