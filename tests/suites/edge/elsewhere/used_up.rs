//! Few ports: who gets none is served beneath, and a port is used again.

use std::{
    fs,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use proxy_tests::{
    Agent, Prober,
    agent::LIMIT,
    pod::{Attempt, Transport},
};

use serde_json::Value;

use super::{
    super::{
        asked::{asked, listed},
        rig::{DNS, HTTP, prober},
    },
    Site,
};
use crate::layers::rig::metrics;

/// All there are.
const FEW: [&str; 1] = ["--source-ports=40000-40003"];

/// One of four is missed once in 10^12 times.
const TRIES: usize = 100;

/// A prober at the client. For one who uses low ports, netfilter takes low ones, and so none of these.
fn client(site: &Site) -> Prober {
    let netns = site.client.host.netns();
    netns
        .sysctls(&[("ipv4/ip_unprivileged_port_start", "512")])
        .unwrap();
    netns.sends_from([512, 1023]).unwrap();
    prober(&site.client)
}

/// The port of these that the endpoint saw, if it was one of them.
fn taken(to: SocketAddr, attempt: &Attempt) -> Option<u16> {
    attempt
        .answer_as(to)
        .unwrap_or_else(|error| panic!("{to}: {error}"));
    let port = attempt.client.unwrap().port();
    (40_000..=40_003).contains(&port).then_some(port)
}

/// First packets on ext1 that got no port.
fn without_port(site: &Site, agent: &Agent<'_>) -> u64 {
    let counted = asked(&site.shop, agent, &["stats", "--output", "json"]);
    let counted: Value = serde_json::from_str(&counted).unwrap();
    let packets = counted["packets"].as_array().unwrap();
    let is_it = |one: &&Value| one["device"] == "ext1" && one["reason"] == "no-port";
    let counted = packets.iter().find(is_it);
    counted.map_or(0, |one| one["packets"].as_u64().unwrap())
}

/// Waits until it is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_connection_that_gets_no_port_is_served_beneath_and_one_that_ends_leaves_its_port() {
    let Some(site) = Site::build() else {
        return;
    };
    let agent = site.serve(&FEW);
    let mut client = client(&site);
    for to in site.client.node.map(|ip| SocketAddr::new(ip, HTTP)) {
        let mut ask = |name: &str| {
            let attempts = client.send_on(name, Transport::Tcp, to, 1).unwrap();
            taken(to, &attempts[0])
        };
        let names = ["1", "2", "3", "4"].map(|name| format!("{to} {name}"));
        let before = without_port(&site, &agent);
        let mut ports = names.each_ref().map(|name| ask(name).unwrap());
        assert_eq!(without_port(&site, &agent), before);
        let freed = ports[1];
        ports.sort_unstable();
        assert_eq!(ports, [40_000, 40_001, 40_002, 40_003]);

        assert_eq!(ask(&format!("{to} beneath")), None);
        assert_eq!(without_port(&site, &agent), before + 1);

        client.close(&names[1]).unwrap();
        let source = SocketAddr::new(site.other.node[usize::from(to.is_ipv6())], freed);
        until("the flow is over", || {
            let flows = listed(&site.shop, &agent, &[]);
            let mut all = flows.iter();
            all.any(|flow| flow["source"] == *source.to_string() && flow["state"] == "closed")
        });
        // Of a few ports, one at random is looked at as to whether its flow is over.
        let again = (0..TRIES).find_map(|_| {
            let attempts = client.send(Transport::Tcp, to, 1).unwrap();
            taken(to, &attempts[0])
        });
        assert_eq!(again, Some(freed));
    }
    // Metrics follow.
    let count = without_port(&site, &agent);
    let name = "culvert_ebpf_edge_packets_total";
    let sample = format!("{name}{{device=\"ext1\",reason=\"no-port\"}} {count}");
    until(&sample, || {
        metrics(&site.shop).lines().any(|line| line == sample)
    });
}

/// Whether a connection of this node to that place is in this state of `/proc/net/tcp`.
fn is_in(site: &Site, to: SocketAddr, state: &str) -> bool {
    let read = || {
        let name = if to.is_ipv4() { "tcp" } else { "tcp6" };
        fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap()
    };
    let table = site.shop.world.node().netns().run(read).unwrap();
    let port = format!(":{:04X}", to.port());
    table.lines().any(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields[2].ends_with(&port) && fields[3] == state
    })
}

#[test]
fn a_connection_of_this_node_has_its_port_until_it_is_over() {
    const PORT: u16 = 40_000;
    const ESTABLISHED: &str = "01";
    const TIME_WAIT: &str = "06";
    let Some(site) = Site::build() else {
        return;
    };
    let _agent = site.serve(&[&format!("--source-ports={PORT}-{PORT}")]);
    let node = site.shop.world.node();
    node.netns().sends_from([PORT, PORT]).unwrap();
    let mut own = Prober::start(node).unwrap();
    let mut client = client(&site);
    for (ip, endpoint) in site.client.node.into_iter().zip(site.other.addresses) {
        let (to, endpoint) = (SocketAddr::new(ip, HTTP), SocketAddr::new(endpoint, 8080));
        let mut seen = || taken(to, &client.send(Transport::Tcp, to, 1).unwrap()[0]);
        let attempts = own.send_on("own", Transport::Tcp, endpoint, 1).unwrap();
        assert_eq!(taken(endpoint, &attempts[0]), Some(PORT));
        assert!(is_in(&site, endpoint, ESTABLISHED));
        assert_eq!(seen(), None);

        own.close("own").unwrap();
        until("TIME-WAIT", || is_in(&site, endpoint, TIME_WAIT));
        assert_eq!(seen(), Some(PORT));
        assert!(is_in(&site, endpoint, TIME_WAIT));
    }
}

#[test]
fn many_short_connections_share_few_ports() {
    let Some(site) = Site::build() else {
        return;
    };
    let _agent = site.serve(&FEW);
    let mut client = client(&site);
    for ip in site.client.node {
        for (transport, port) in [(Transport::Tcp, HTTP), (Transport::Udp, DNS)] {
            let to = SocketAddr::new(ip, port);
            let attempts = client.send(transport, to, 200).unwrap();
            let ports = attempts.iter().filter_map(|one| taken(to, one));
            // Most connections are over when the next one begins; nothing tells that of datagrams.
            let least = if transport.is_udp() { 4 } else { 50 };
            assert!(ports.count() >= least, "{transport} {to}");
        }
    }
}
