//! A layer that somebody else takes away while it serves: connections go on by the other one, and it is
//! repaired.

use std::{
    fs,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use proxy_tests::{
    Agent, Prober, Shop,
    bpf::Pinned,
    pod::Transport,
    shop::{frontend, service, small_service},
};

use super::rig::{
    ABOVE, BENEATH, answer, assert_whole, can_run, excused, from_the_node, from_the_pod,
    is_translated, nft, options, prober, repaired, serving, told,
};

const FILE: &str = "cluster.yaml";

/// The Services 1, for traffic, and 2 to `last`, for single connections.
pub fn services(last: u8) -> String {
    let others = (2..=last).map(|number| small_service(number, &[1]));
    [service(1, &[1, 2, 3])].into_iter().chain(others).collect()
}

#[test]
fn sockets_do_not_notice_that_the_layer_beneath_loses_its_tables() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*services(1))];
    let mut agent = Agent::start(&shop.world, options(&[]), &files).unwrap();
    let (mut pod, mut node) = (from_the_pod(&shop), from_the_node(&shop));
    let place = shop.world.unseen(&shop.client).unwrap();
    let mut unseen = prober(&place);
    let to = frontend(1, 80);
    answer(&mut unseen, to);
    for script in [
        &["delete", "table", "ip", "culvert"][..],
        &["delete", "table", "ip6", "culvert"],
        &["flush", "table", "ip", "culvert"],
        &["flush", "ruleset"],
        &["flush", "ruleset"],
    ] {
        nft(&shop, script);
        repaired(&mut agent, BENEATH);
        // Those that were open may have broken: nothing translated what was under way.
        answer(&mut unseen, to);
        let when = format!("after {script:?}");
        pod.goes_on(&when).unwrap();
        node.goes_on(&when).unwrap();
    }
    let repairs = told(&agent)["repaired"].as_u64().unwrap();
    assert!(repairs > 0);
    // Faster than it is looked at: a repair may find that what it read is gone again.
    for round in 0..30 {
        nft(&shop, &["flush", "ruleset"]);
        pod.goes_on(&format!("flush {round}")).unwrap();
    }
    node.goes_on("after many flushes").unwrap();
    let deadline = Instant::now() + super::LIMIT;
    let within = Duration::from_millis(300);
    while unseen.send_within(within, Transport::Tcp, to, 1).unwrap()[0]
        .answer_as(to)
        .is_err()
    {
        assert!(Instant::now() < deadline, "{:?}", agent.log());
    }
    pod.stop().unwrap();
    node.stop().unwrap();
    // A repair that failed is tried again as a sync.
    agent.apply_and_sync(FILE, &services(2)).unwrap();
    answer(&mut unseen, frontend(2, 80));
    assert_whole(&shop, &agent);
    assert!(told(&agent)["repaired"].as_u64().unwrap() > repairs);
}

/// A period that no test lasts for: what is detached stays so until the agent is told to look.
const NO_REPAIR: &str = "--sync-period=1h";

/// Detaches all programs of the hooks, as `bpftool link detach` does.
fn detach(agent: &Agent<'_>) {
    let links = agent.pins().path().join("links");
    let mut detached = 0;
    for link in fs::read_dir(links).unwrap() {
        Pinned::open(&link.unwrap().path())
            .unwrap()
            .detach()
            .unwrap();
        detached += 1;
    }
    assert!(detached > 0);
}

#[test]
fn processes_go_on_by_the_layer_beneath_while_the_hooks_are_detached() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*services(6))];
    let mut agent = Agent::start(&shop.world, options(&[NO_REPAIR]), &files).unwrap();
    let mut pod = from_the_pod(&shop).excusing(excused);
    let mut node = from_the_node(&shop).excusing(excused);
    let mut single = Prober::start(&shop.client).unwrap();
    assert!(!is_translated(&shop, &mut single, frontend(2, 80)));
    for number in [3, 5] {
        detach(&agent);
        assert!(is_translated(&shop, &mut single, frontend(number, 80)));
        pod.goes_on("without hooks").unwrap();
        node.goes_on("without hooks").unwrap();
        kill(Pid::from_raw(agent.pid().unwrap()), Signal::SIGHUP).unwrap();
        repaired(&mut agent, ABOVE);
        assert!(!is_translated(&shop, &mut single, frontend(number + 1, 80)));
        pod.goes_on("with hooks again").unwrap();
        node.goes_on("with hooks again").unwrap();
    }
    pod.stop().unwrap();
    node.stop().unwrap();
    assert_whole(&shop, &agent);
    let log = agent.log();
    let told = log.iter().filter(|line| {
        line.message() == Some("repaired")
            && line.text("layer") == Some(ABOVE)
            && line.text("difference") == Some("detached")
    });
    assert!(told.count() > 0, "{log:?}");
}

#[test]
fn processes_go_on_by_the_layer_beneath_when_pins_and_agent_are_gone() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*services(5))];
    let mut agent = Agent::start(&shop.world, options(&[NO_REPAIR]), &files).unwrap();
    let mut pod = from_the_pod(&shop).excusing(excused);
    let mut node = from_the_node(&shop).excusing(excused);
    let mut single = Prober::start(&shop.client).unwrap();
    // The agent holds what was pinned.
    fs::remove_dir_all(agent.pins().path()).unwrap();
    pod.goes_on("without pins").unwrap();
    assert!(!is_translated(&shop, &mut single, frontend(2, 80)));
    // Nobody does any more.
    agent.kill().unwrap();
    assert!(is_translated(&shop, &mut single, frontend(3, 80)));
    pod.goes_on("without pins and agent").unwrap();
    node.goes_on("without pins and agent").unwrap();

    agent.spawn().unwrap();
    let beneath = serving(&mut agent, BENEATH);
    assert_eq!(beneath.flag("adopted"), Some(true));
    let above = serving(&mut agent, ABOVE);
    assert_eq!(above.flag("adopted"), Some(false));
    assert!(!is_translated(&shop, &mut single, frontend(4, 80)));
    pod.stop().unwrap();
    node.stop().unwrap();
    assert_whole(&shop, &agent);
}
