//! Which rights what needs: no more than it takes, the same answer by every backend, and never a
//! wait for what does not come. Needs root, BPF and `nf_tables`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{os::fd::AsFd as _, process::Command};

use proxy_backend::OpenError;
use proxy_backend_nftables as nftables;
use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    agent::{self, LIMIT},
    pod::Transport,
    process::{self, Finished, Process},
    requires::{self, NFTABLES, PRIVILEGED},
    shop::{answers, frontend, http, small_service},
};

const SUITE: &str = "rights";
const FILE: &str = "web.yaml";

/// A command that runs its arguments as root with these capabilities and no others.
fn only(capabilities: &str) -> Vec<String> {
    let sets = ["--bounding-set", "--inh-caps", "--ambient-caps"];
    let sets = sets.map(|set| format!("{set}=-all{capabilities}"));
    let mut launcher = vec!["setpriv".to_owned()];
    launcher.extend(sets);
    launcher.push("--".to_owned());
    launcher
}

fn options(mode: &str) -> AgentOptions {
    AgentOptions {
        arguments: vec![format!("--proxy-mode={mode}")],
        ..AgentOptions::default()
    }
}

/// `cleanup` on the node with these capabilities.
fn cleanup(shop: &Shop, agent: &Agent<'_>, capabilities: &str) -> Finished {
    let launcher = only(capabilities);
    let mut command = Command::new(&launcher[0]);
    command.args(&launcher[1..]).arg(agent::path().unwrap());
    command
        .args(["cleanup", "--pin-dir"])
        .arg(agent.pins().path());
    let netns = shop.world.node().netns();
    process::enter(&mut command, Some(netns.as_fd()), None).unwrap();
    Process::run("proxy-agent", command, LIMIT).unwrap()
}

fn assert_serves(prober: &mut Prober) {
    let to = frontend(1, 80);
    let attempt = prober.send(Transport::Tcp, to, 1).unwrap().remove(0);
    assert_eq!(attempt.answer_as(to), Ok(http(1)));
}

#[test]
fn a_backend_without_rights_says_which_and_waits_for_none() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*small_service(1, &[1]))];
    for mode in ["ebpf", "nftables", "auto"] {
        let without = AgentOptions {
            launcher: only(",+dac_override"),
            ..options(mode)
        };
        let mut agent = Agent::prepare(&shop.world, without, &files).unwrap();
        agent.spawn().unwrap();
        let (code, log) = agent.wait_for_exit().unwrap();
        assert_eq!(code, Some(3), "{mode}: {log:?}");
        let stopped = log.last().unwrap().text("error").unwrap();
        let part = if mode == "auto" {
            "check"
        } else {
            "CAP_NET_ADMIN"
        };
        assert!(stopped.contains(part), "{mode}: {stopped}");
        let tries = log.iter().filter(|line| line.raw.contains("retry_in_ms"));
        assert_eq!(tries.count(), 0, "{mode}: {log:?}");
    }
}

#[test]
fn three_capabilities_are_enough_for_ebpf_and_check_says_so() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let files = [(FILE, &*small_service(1, &[1]))];
    let three = AgentOptions {
        launcher: only(",+net_admin,+bpf,+perfmon"),
        ..options("auto")
    };
    let mut agent = Agent::prepare(&shop.world, three, &files).unwrap();
    agent.launch().unwrap();
    assert_eq!(agent.serving().unwrap().text("backend"), Some("ebpf"));
    assert_serves(&mut Prober::start(&shop.client).unwrap());
}

#[test]
fn cleanup_needs_the_rights_of_what_it_removes() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*small_service(1, &[1]))];
    let mut agent = Agent::start(&shop.world, options("nftables"), &files).unwrap();
    agent.terminate().unwrap();
    let denied = cleanup(&shop, &agent, "");
    assert_eq!(denied.code, Some(3), "{denied:?}");
    assert!(denied.stderr.contains("CAP_NET_ADMIN"), "{denied:?}");
    let removed = |done: &Finished| {
        let tables = ["ip", "ip6"].map(|family| format!("removed the table {family} culvert"));
        tables.iter().all(|table| done.stdout.contains(table))
    };
    let done = cleanup(&shop, &agent, ",+net_admin");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(removed(&done), "{done:?}");

    // What is pinned goes with its last name, whoever may not open it.
    agent.launch().unwrap();
    agent.kill().unwrap();
    let mut other = Agent::start(&shop.world, options("ebpf"), &files).unwrap();
    other.terminate().unwrap();
    let done = cleanup(&shop, &other, ",+net_admin");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(removed(&done), "{done:?}");
    assert!(!other.pins().path().exists());
}

/// Socket hooks come before rules: what they lead to must not stay as it was.
#[test]
fn rules_that_take_over_from_ebpf_need_no_rights_for_ebpf() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*small_service(1, &[1]))];
    let mut agent = Agent::start(&shop.world, options("ebpf"), &files).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    assert_serves(&mut prober);
    agent.terminate().unwrap();
    agent.apply(FILE, &small_service(1, &[2])).unwrap();
    *agent.options() = AgentOptions {
        launcher: only(",+net_admin"),
        ..options("auto")
    };
    agent.launch().unwrap();
    assert_eq!(agent.serving().unwrap().text("backend"), Some("nftables"));
    agent
        .wait_for("what another backend left is removed")
        .unwrap();
    let reached = answers(&mut prober, Transport::Tcp, frontend(1, 80)).unwrap();
    assert_eq!(reached, [http(2)].into());
}

/// What is asked before can have changed by the time that tables are removed.
#[test]
fn tables_are_removed_with_the_lock_in_hand() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*small_service(1, &[1]))];
    let agent = Agent::start(&shop.world, options("nftables"), &files).unwrap();
    let who = format!("process {} of ", agent.pid().unwrap());
    let mut prober = Prober::start(&shop.client).unwrap();
    for remove in [nftables::cleanup, nftables::remove] {
        match shop.world.node().netns().run(remove).unwrap() {
            Err(OpenError::Held { holder, .. }) => assert!(holder.starts_with(&who), "{holder}"),
            other => panic!("{other:?}"),
        }
        assert_serves(&mut prober);
    }
}
