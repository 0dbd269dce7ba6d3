//! Another mode: connections that the programs translate go on until they end, and new ones are the
//! layer beneath's.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    os::fd::AsFd as _,
    process::{ChildStdout, Stdio},
};

use nix::sys::signal::Signal;
use proxy_tests::{
    Agent, Prober, Shop,
    agent::{LIMIT, Rights},
    pod::Transport,
    process::{Process, enter},
};

use super::rig::{HTTP, Site, prober};
use crate::layers::tracked::flows;

#[test]
fn connections_outlive_the_mode_and_new_ones_belong_to_the_layer_beneath() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[1]);
    let (shop, neighbour) = (&site.shop, &site.neighbour);
    let mut prober = prober(neighbour);
    let to = SocketAddr::new(neighbour.node[0], HTTP);
    let mut ask = |name: &str| {
        let attempts = prober.send_on(name, Transport::Tcp, to, 2).unwrap();
        for attempt in &attempts {
            attempt
                .answer_as(to)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    };
    ask("kept");
    agent.terminate().unwrap();
    agent.options().arguments = vec!["--proxy-mode=nftables".to_owned()];
    // To ask about programs takes rights that the mode itself does not.
    agent.options().rights = Rights::Root;
    agent.launch().unwrap();
    agent
        .wait_for("what another backend left is in use; removed when its last connection has ended")
        .unwrap();
    ask("kept");
    ask("new");
    let translated = |flow: &crate::layers::tracked::Flow| flow.original[1] == to;
    assert!(flows(&shop.world).iter().any(translated));
}

/// `cleanup --wait=10m` on the node, once it waits, and what it said until then.
fn waiting_cleanup(agent: &Agent<'_>, shop: &Shop) -> (Process, BufReader<ChildStdout>, String) {
    let mut command = agent.command("cleanup").unwrap();
    command.arg("--wait=10m").stdout(Stdio::piped());
    let node = shop.world.node().netns();
    enter(&mut command, Some(node.as_fd()), None).unwrap();
    let mut process = Process::spawn("proxy-agent cleanup --wait", command).unwrap();
    let mut said = BufReader::new(process.child().stdout.take().unwrap());
    let mut lines = String::new();
    while !lines
        .contains("1 connections from outside are translated on devices; waiting up to 600 s")
    {
        assert_ne!(said.read_line(&mut lines).unwrap(), 0, "{lines}");
    }
    (process, said, lines)
}

fn answers(prober: &mut Prober, name: &str, to: SocketAddr) -> bool {
    let attempts = prober.send_on(name, Transport::Tcp, to, 1).unwrap();
    attempts[0].answer_as(to).is_ok()
}

#[test]
fn a_cleanup_that_waits_breaks_no_connection_that_ends_in_time() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[1]);
    let to = SocketAddr::new(site.neighbour.node[0], HTTP);
    let mut prober = prober(&site.neighbour);
    assert!(answers(&mut prober, "kept", to));
    agent.terminate().unwrap();

    let (mut cleanup, _said, lines) = waiting_cleanup(&agent, &site.shop);
    assert!(lines.contains("culvert of nftables"), "{lines}");
    assert!(answers(&mut prober, "kept", to));
    assert!(!answers(&mut prober, "new", to), "nobody serves any more");
    // Told to end, it leaves what the connection needs.
    cleanup.signal(Signal::SIGTERM).unwrap();
    assert_eq!(cleanup.wait(LIMIT).unwrap().code(), Some(1));
    assert!(answers(&mut prober, "kept", to));

    let (mut cleanup, _said, _) = waiting_cleanup(&agent, &site.shop);
    assert!(answers(&mut prober, "kept", to));
    prober.close("kept").unwrap();
    assert!(cleanup.wait(LIMIT).unwrap().success());
    assert!(!agent.pins().path().exists());
}
