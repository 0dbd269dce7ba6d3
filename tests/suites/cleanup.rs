//! What an agent leaves on purpose, and that `cleanup` removes all of it. Needs root and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use proxy_common::names::{MAPS, MapGroup, SOCKET_PROGRAMS};
use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    agent::{self, LIMIT},
    bpf::{self, Pinned},
    pod::Transport,
    process::{Finished, Process},
    requires::{self, NFTABLES, PRIVILEGED},
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
            MapGroup::Connections => "connections-v1",
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
    let done = cleanup(pins);
    assert_eq!(done.code, Some(4), "{done:?}");
    assert!(done.stderr.contains("stop it first"), "{done:?}");
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
    fs::rename(
        &link,
        link.with_file_name(format!("{}-next", SOCKET_PROGRAMS[0])),
    )
    .unwrap();
    fs::rename(pins.join("flows-v1"), pins.join("services-v1-next")).unwrap();
    fs::create_dir(pins.join("services-v0")).unwrap();
    agent.cleanup().unwrap();
}

fn cleanup(pins: &Path) -> Finished {
    agent::run(&["cleanup".as_ref(), "--pin-dir".as_ref(), pins.as_os_str()]).unwrap()
}

#[test]
fn cleanup_removes_nothing_where_no_pins_can_be() {
    if !requires::met("cleanup", PRIVILEGED) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let maps = dir.path().join("services-v1");
    fs::create_dir(&maps).unwrap();
    fs::write(maps.join("file"), "precious").unwrap();
    let done = cleanup(dir.path());
    assert!(maps.join("file").exists(), "{done:?}");
    assert_eq!(done.code, Some(3), "{done:?}");
    let expected = format!("{} is not on a BPF file system", dir.path().display());
    assert!(done.stderr.contains(&expected), "{done:?}");

    // Nor where it depends on the working directory what is meant.
    let mut command = Command::new(agent::path().unwrap());
    command
        .args(["cleanup", "--pin-dir", "services-v1"])
        .current_dir(dir.path());
    let done = Process::run("proxy-agent", command, LIMIT).unwrap();
    assert!(maps.join("file").exists(), "{done:?}");
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.stderr.contains("absolute"), "{done:?}");
}

#[test]
fn cleanup_leaves_and_names_what_is_not_culverts() {
    if !requires::met("cleanup", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let cluster = service(1, &[1]);
    let options = AgentOptions::default();
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    agent.terminate().unwrap();
    let pins = agent.pins().path();
    // The last is another program's link, as far as its name tells.
    let link = Path::new("links").join("other");
    let foreign = [
        "links",
        "links/other",
        "other",
        "other/inner",
        "services-v1",
        "services-v1/inner",
        "services-v1x",
    ];
    for path in ["other/inner", "services-v1/inner", "services-v1x"] {
        fs::create_dir_all(pins.join(path)).unwrap();
    }
    fs::rename(
        pins.join("links").join(SOCKET_PROGRAMS[0]),
        pins.join(&link),
    )
    .unwrap();
    // Other versions' maps are no strangers.
    fs::create_dir(pins.join("services-v0-old")).unwrap();

    let done = cleanup(pins);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(agent.pins().entries(), foreign.map(PathBuf::from));
    for path in ["links/other", "other", "services-v1/inner", "services-v1x"] {
        let path = pins.join(path).display().to_string();
        assert!(done.stdout.contains(&path), "{path}: {done:?}");
    }
    let done = cleanup(pins);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.starts_with("no pins of Culvert's"), "{done:?}");

    fs::remove_file(pins.join(link)).unwrap();
    for path in ["other/inner", "other", "services-v1/inner", "services-v1x"] {
        fs::remove_dir(pins.join(path)).unwrap();
    }
}

/// Hooks that an agent with other pins left come before those of the one that serves.
#[test]
fn what_an_agent_with_other_pins_left_goes_while_another_one_serves() {
    if !requires::met("cleanup", PRIVILEGED) || !requires::met("cleanup", NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*service(1, &[1]))];
    let mut before = Agent::start(&shop.world, AgentOptions::default(), &files).unwrap();
    before.terminate().unwrap();
    let options = AgentOptions {
        arguments: vec!["--proxy-mode=auto".to_owned()],
        ..AgentOptions::default()
    };
    let agent = Agent::start(&shop.world, options, &files).unwrap();
    let done = before.cleanup_run().unwrap();
    assert_eq!(done.code, Some(0), "{done:?}");
    let holder = format!("process {} of ", agent.pid().unwrap());
    assert!(done.stdout.contains("left what serves here"), "{done:?}");
    assert!(done.stdout.contains(&holder), "{done:?}");
    assert!(before.pins().entries().is_empty());
    // Nothing of the one that serves is gone, by hooks and by rules.
    let to = frontend(1, 80);
    let machine = shop.world.unseen(&shop.client).unwrap();
    let mut probers = [
        Prober::start(&shop.client).unwrap(),
        Prober::start_with(|command| machine.spawn(command)).unwrap(),
    ];
    for prober in &mut probers {
        let attempt = prober.send(Transport::Tcp, to, 1).unwrap().remove(0);
        assert_eq!(attempt.answer_as(to), Ok(http(1)));
    }
    // There is nothing more at those pins: whose rules are to go, then?
    let done = before.cleanup_run().unwrap();
    assert_eq!(done.code, Some(4), "{done:?}");
}
