//! Devices that come, and programs that others take away or put before ours.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use proxy_tests::{Agent, Shop, agent::LIMIT, packets::Programs, pod::Transport};

use super::{
    journeys::{all_are_led, dial, tracked},
    rig::{FILE, HTTP, Site, can_run, cluster, on_node, options, prober, served},
};

/// Connections that are open while programs are taken away: it takes none of them to another of three
/// endpoints by chance.
const CONNECTIONS: usize = 12;

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

#[test]
fn programs_that_somebody_takes_off_a_device_are_put_back() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[1, 2, 3]);
    let (shop, neighbour) = (&site.shop, &site.neighbour);
    let directory = agent.pins().path().to_owned();
    let entries = agent.pins().entries();
    let of_devices = entries.iter().filter(|path| path.starts_with("devices"));
    let pinned: Vec<_> = of_devices
        .map(|path| directory.join(path).display().to_string())
        .collect();
    // Before Linux 6.6 programs hang on a qdisc, and nothing but a note about that is pinned.
    let has_qdisc = pinned.iter().any(|path| path.ends_with("-clsact"));
    let is_link = |path: &&String| path.ends_with("gress");
    let undone: Vec<Vec<&str>> = if has_qdisc {
        vec![vec!["tc", "qdisc", "del", "dev", "ext1", "clsact"]]
    } else {
        let links = pinned.iter().filter(is_link);
        links
            .map(|path| vec!["bpftool", "link", "detach", "pinned", path])
            .collect()
    };
    assert!(!undone.is_empty(), "{pinned:?}");
    let mut prober = prober(neighbour);
    let to = SocketAddr::new(neighbour.node[0], HTTP);
    let mut ask = || {
        for name in 0..CONNECTIONS {
            let name = format!("kept{name}");
            let attempts = prober.send_on(&name, Transport::Tcp, to, 1).unwrap();
            let answer = attempts[0].answer_as(to);
            answer.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    };
    ask();
    for command in undone {
        on_node(shop, command[0], &command[1..]);
        // The layer beneath takes no request of an open connection for a new one, to another endpoint.
        // Replies that nobody translates break it: none is on its way.
        if !command.last().is_some_and(|path| path.ends_with("egress")) {
            ask();
        }
        // Both hang on the qdisc.
        for _ in 0..if has_qdisc { 2 } else { 1 } {
            agent
                .wait_for_line("a program is put back", |line| {
                    line.message() == Some("repaired")
                        && line.text("difference") == Some("detached")
                })
                .unwrap();
        }
    }
    ask();
    dial(&mut prober, neighbour.node);
    for client in neighbour.addresses {
        let flows = tracked(shop, client);
        assert!(all_are_led(&flows), "{flows:?}");
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
    let pinned = Programs::behind(agent.pins().path()).unwrap();
    // Before Linux 6.6 it shows that they are served at all.
    let Some(Programs { incoming, outgoing }) = pinned else {
        return;
    };
    for program in [incoming, outgoing] {
        let name = program.name().unwrap();
        let (stack, verified) = (program.stack().unwrap(), program.verified().unwrap());
        println!("{name}: {stack} bytes on the stack, {verified} instructions verified");
        assert!(stack <= STACK, "{name} takes {stack} bytes on the stack");
        assert!(verified <= VERIFIED, "{name}: {verified} instructions");
    }
}
