//! A layer that somebody else takes away while it serves: connections go on by the other one, and it is
//! repaired.

use std::fs;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use proxy_tests::{
    Agent, Prober, Shop,
    bpf::Pinned,
    pod::Transport,
    shop::{frontend, service, small_service},
    world::NODE_ADDRESSES,
};

use super::rig::{
    ABOVE, BENEATH, answer, assert_whole, can_run, excused, from_the_node, from_the_pod,
    is_translated, layer, nft, options, prober, repaired, serving, told,
};

const FILE: &str = "cluster.yaml";

/// The Services 1, for traffic, and 2 to `last`, for single connections.
fn services(last: u8) -> String {
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
        answer(&mut unseen, to);
        let when = format!("after {script:?}");
        pod.goes_on(&when).unwrap();
        node.goes_on(&when).unwrap();
    }
    let before = told(&agent)["repaired"].as_u64().unwrap();
    assert!(before > 0);
    // Faster than it is looked at: a repair may find that what it read is gone again.
    for round in 0..40 {
        nft(&shop, &["flush", "ruleset"]);
        pod.goes_on(&format!("flush {round}")).unwrap();
    }
    node.goes_on("after many flushes").unwrap();
    let deadline = std::time::Instant::now() + super::LIMIT;
    let within = std::time::Duration::from_millis(300);
    while unseen.send_within(within, Transport::Tcp, to, 1).unwrap()[0]
        .answer_as(to)
        .is_err()
    {
        assert!(std::time::Instant::now() < deadline, "{:?}", agent.log());
    }
    pod.stop().unwrap();
    node.stop().unwrap();
    // A repair that failed is tried again as a sync.
    agent.apply_and_sync(FILE, &services(2)).unwrap();
    answer(&mut unseen, frontend(2, 80));
    assert_whole(&shop, &agent);
    assert!(told(&agent)["repaired"].as_u64().unwrap() > before);
}

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
    let mut agent = Agent::start(&shop.world, options(&[]), &files).unwrap();
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
    let mut agent = Agent::start(&shop.world, options(&[]), &files).unwrap();
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

#[test]
fn what_only_packets_can_do_is_told_as_lacking_until_the_layer_beneath_comes() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let open = small_service(2, &[2])
        .replace("spec:\n", "spec:\n  type: NodePort\n")
        .replace("{name: http, ", "{name: http, nodePort: 30080, ");
    let files = [(FILE, &*[services(1), open].concat())];
    let holder = super::rig::Holder::take(&shop);
    let mut agent = Agent::start(&shop.world, options(&[]), &files).unwrap();
    let gap = agent.wait_for("capability gap").unwrap();
    assert_eq!(gap.text("service"), Some("shop/s2:http/TCP/IPv4"));
    assert_eq!(gap.text("capability"), Some("external-traffic"));
    let failed = agent
        .log()
        .into_iter()
        .find(|line| line.message() == Some("sync failed"));
    let failed = failed.unwrap();
    assert_eq!(failed.text("layer"), Some(BENEATH));
    let named = "table ip6 culvert belongs to another process";
    assert!(failed.text("reason").unwrap().contains(named), "{failed:?}");

    let now = told(&agent);
    assert_eq!(
        (&now["inForce"], &now["suffices"]),
        (&false.into(), &false.into())
    );
    assert_eq!(now["backend"], "ebpf over nftables");
    let mut lacks = now["lacks"].as_array().unwrap().iter();
    assert!(
        lacks.any(|one| one["capability"] == "external-traffic"),
        "{now:#}"
    );
    assert_eq!(layer(&now, ABOVE)["inForce"], true);
    let beneath = layer(&now, BENEATH);
    assert_eq!(
        (&beneath["inForce"], &beneath["serves"]),
        (&false.into(), &false.into())
    );
    assert!(
        beneath["failure"].as_str().unwrap().contains(named),
        "{beneath:#}"
    );
    assert!(beneath["retryAt"].is_string(), "{beneath:#}");
    assert!(super::rig::in_force(&shop, ABOVE));
    assert!(!super::rig::in_force(&shop, BENEATH));

    let (mut pod, mut node) = (from_the_pod(&shop), from_the_node(&shop));
    let place = shop.world.unseen(&shop.client).unwrap();
    let mut unseen = prober(&place);
    let node_port = (NODE_ADDRESSES[0], 30080).into();
    answer(&mut pod.prober, node_port);
    let attempt = unseen.send(Transport::Tcp, node_port, 1).unwrap().remove(0);
    assert_eq!(attempt.errno(), Some("ECONNREFUSED"));

    drop(holder);
    serving(&mut agent, BENEATH);
    let closed = agent.wait_for("capability gap closed").unwrap();
    assert_eq!(closed.text("service"), gap.text("service"));
    answer(&mut unseen, node_port);
    answer(&mut unseen, frontend(1, 80));
    pod.goes_on("over nftables").unwrap();
    node.goes_on("over nftables").unwrap();
    assert_whole(&shop, &agent);
    pod.stop().unwrap();
    node.stop().unwrap();
}
