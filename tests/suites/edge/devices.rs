//! Devices that come and go, and what the verifier makes of the programs on them.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use proxy_common::names::{EDGE_PROGRAMS, SWEEP_PROGRAM};
use proxy_tests::{Agent, Shop, agent::LIMIT, bpf::program::Program, pod::Transport};

use super::rig::{FILE, HTTP, Site, can_run, cluster, on_node, options, prober, served};

#[test]
fn a_device_that_comes_later_is_served_when_it_has_an_address() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let first = shop.world.neighbour(1).unwrap();
    let objects = cluster(&first, &[1, 2]);
    let mut agent = Agent::start(&shop.world, options(&[]), &[(FILE, &*objects)]).unwrap();
    served(&mut agent, "ext1");
    // It is behind a router, so that a route with a gateway leads there.
    let second = shop.world.neighbour_behind(2, 1500).unwrap();
    served(&mut agent, "ext2");
    let mut prober = prober(&second);
    // On addresses that the agent knows already.
    for ip in first.node {
        let to = (ip, HTTP).into();
        for attempt in prober.send(Transport::Tcp, to, 5).unwrap() {
            attempt
                .answer_as(to)
                .unwrap_or_else(|error| panic!("{to}: {error}"));
        }
    }
}

#[test]
fn nothing_stays_pinned_for_a_device_that_is_gone() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let neighbour = shop.world.neighbour(1).unwrap();
    let objects = cluster(&neighbour, &[1]);
    let devices = options(&["--devices=ext1,passing*"]);
    let mut agent = Agent::start(&shop.world, devices, &[(FILE, &*objects)]).unwrap();
    served(&mut agent, "ext1");
    let pinned = |agent: &Agent<'_>| {
        let pins = std::fs::read_dir(agent.pins().path().join("devices")).unwrap();
        pins.count()
    };
    let before = pinned(&agent);
    for number in 0..3 {
        let [one, other] = ["", "peer"].map(|suffix| format!("passing{number}{suffix}"));
        let veth = ["link", "add", &one, "type", "veth", "peer", "name", &other];
        on_node(&shop, "ip", &veth);
        for device in [&one, &other] {
            on_node(&shop, "ip", &["link", "set", device, "up"]);
        }
        served(&mut agent, &one);
    }
    assert!(pinned(&agent) > before);
    for number in 0..3 {
        on_node(&shop, "ip", &["link", "del", &format!("passing{number}")]);
    }
    // It looks every second.
    let deadline = Instant::now() + LIMIT;
    while pinned(&agent) > before {
        assert!(Instant::now() < deadline, "{} pins", pinned(&agent));
        thread::sleep(Duration::from_millis(50));
    }
}

/// Which kernels there are in the world nobody can try. Those before Linux 6.18 count the room on the
/// stack more coarsely than it does.
#[test]
fn programs_stay_within_what_every_kernel_allows() {
    const STACK: u32 = 512;
    const VERIFIED: u64 = 120_000;
    let Some(site) = Site::build() else {
        return;
    };
    let agent = site.serve(&[1]);
    let programs = Program::held_by(agent.pid().unwrap()).unwrap();
    let mut remaining: BTreeSet<_> = EDGE_PROGRAMS.into_iter().chain([SWEEP_PROGRAM]).collect();
    for program in programs {
        let name = program.name().unwrap();
        if !remaining.remove(&*name) {
            continue;
        }
        let (stack, verified) = (program.stack().unwrap(), program.verified().unwrap());
        println!("{name}: {stack} bytes on the stack, {verified} instructions verified");
        assert!(stack <= STACK, "{name} takes {stack} bytes on the stack");
        assert!(verified <= VERIFIED, "{name}: {verified} instructions");
    }
    assert_eq!(remaining, BTreeSet::new(), "not loaded");
}
