//! What becomes of a connection from outside: who decided, by the node's conntrack.

use std::net::SocketAddr;

use proxy_model::Protocol;
use proxy_tests::{
    Agent, Shop,
    agent::{LIMIT, LogLine},
    pod::Transport,
    process::Process,
};

use super::rig::{
    DNS, FILE, HTTP, Site, add_others_port, can_run, cluster, options, prober, served,
};
use crate::layers::tracked::{Flow, flows};

/// What the node tracks of connections to these NodePorts, or to what is behind them.
pub fn tracked(shop: &Shop, client: std::net::IpAddr) -> Vec<Flow> {
    let from_client = |flow: &Flow| flow.original[0].ip() == client;
    let all = flows(&shop.world).into_iter().filter(from_client);
    // The neighbours ask each other who they are.
    all.filter(|flow| [Protocol::Tcp, Protocol::Udp].contains(&flow.protocol))
        .collect()
}

/// Whether each connection is one to an endpoint, as if the client had dialled that.
pub fn all_are_led(flows: &[Flow]) -> bool {
    let led = |flow: &Flow| [8080, 5353].contains(&flow.original[1].port());
    !flows.is_empty() && flows.iter().all(led)
}

/// Sends some requests to each NodePort, and each must be answered as from there.
pub fn dial(prober: &mut proxy_tests::Prober, node: [std::net::IpAddr; 2]) {
    for ip in node {
        for (transport, port) in [(Transport::Tcp, HTTP), (Transport::Udp, DNS)] {
            let to = SocketAddr::new(ip, port);
            for attempt in prober.send(transport, to, 5).unwrap() {
                attempt
                    .answer_as(to)
                    .unwrap_or_else(|error| panic!("{to}: {error}"));
            }
        }
    }
}

#[test]
fn clients_outside_are_led_to_endpoints_here_and_netfilter_translates_nothing() {
    let Some(site) = Site::build() else {
        return;
    };
    let _agent = site.serve(&[1, 2, 3]);
    let (shop, neighbour) = (&site.shop, &site.neighbour);
    let mut prober = prober(neighbour);
    dial(&mut prober, neighbour.node);
    for client in neighbour.addresses {
        let flows = tracked(shop, client);
        assert!(all_are_led(&flows), "{flows:?}");
    }
}

/// What the agent answers to a subcommand.
fn answer(agent: &Agent<'_>, subcommand: &str, arguments: &[&str]) -> String {
    let mut command = agent.command(subcommand).unwrap();
    command.args(arguments);
    let done = Process::run("proxy-agent", command, LIMIT).unwrap();
    assert_eq!(done.code, Some(0), "{done:?}");
    done.stdout
}

/// What becomes of a packet that comes in by a device, and why.
pub fn explained(
    agent: &Agent<'_>,
    from: std::net::IpAddr,
    to: SocketAddr,
    device: &str,
) -> String {
    let (from, to) = (from.to_string(), format!("{to}/tcp"));
    let packet = [
        "--path=packet",
        "--from",
        &from,
        "--to",
        &to,
        "--in-interface",
        device,
    ];
    answer(agent, "explain", &packet)
}

#[test]
fn devices_are_told_and_which_layer_decides_about_a_packet() {
    let Some(site) = Site::build() else {
        return;
    };
    let agent = site.serve(&[1, 2, 3]);
    let neighbour = &site.neighbour;
    let [node, _] = neighbour.node;
    let state = answer(&agent, "state", &[]);
    let line = format!("\ndevice ext1: served (Ethernet): carries {node}\n");
    assert!(state.contains(&line), "{state}");
    let of_port = |port: u16, device: &str| {
        explained(&agent, neighbour.addresses[0], (node, port).into(), device)
    };
    for (port, device, part) in [
        (HTTP, "ext1", "ebpf decides: its programs are on ext1."),
        (HTTP, "lo", "nftables decides: lo is not served: loopback."),
        (
            1,
            "ext1",
            "nftables decides: ebpf passes the packet on: it is for no Service.",
        ),
    ] {
        let told = of_port(port, device);
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn without_programs_on_devices_the_layer_beneath_serves() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let neighbour = shop.world.neighbour(1).unwrap();
    let objects = cluster(&neighbour, &[1, 2, 3]);
    let agent = Agent::start(&shop.world, options(&["--tc=off"]), &[(FILE, &*objects)]).unwrap();
    let mut prober = prober(&neighbour);
    dial(&mut prober, neighbour.node);
    for client in neighbour.addresses {
        let flows = tracked(&shop, client);
        let translated = |flow: &Flow| [HTTP, DNS].contains(&flow.original[1].port());
        assert!(flows.iter().all(translated), "{flows:?}");
    }
    drop(agent);
}

#[test]
fn what_reaches_its_pod_by_somebody_elses_device_is_left_to_the_layer_beneath() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let neighbour = shop.world.neighbour(1).unwrap();
    let objects = cluster(&neighbour, &[1]).replace("externalTrafficPolicy: Local", "");
    add_others_port(&shop);
    let debug = options(&["--log-level=info,proxy_backend_ebpf=debug"]);
    let mut agent = Agent::start(&shop.world, debug, &[(FILE, &*objects)]).unwrap();
    served(&mut agent, "ext1");
    dial(&mut prober(&neighbour), neighbour.node);
    for client in neighbour.addresses {
        let flows = tracked(&shop, client);
        assert!(!flows.is_empty() && !all_are_led(&flows), "{flows:?}");
    }
    let told = |line: &LogLine| {
        line.message() == Some("packets not translated")
            && line.text("device") == Some("ext1")
            && line.text("reason") == Some("no-source")
    };
    agent.wait_for_line("packets are told", told).unwrap();
}

#[test]
fn an_endpoint_that_goes_is_left_by_datagrams_at_once_and_by_connections_when_they_end() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[1]);
    let neighbour = &site.neighbour;
    let mut prober = prober(neighbour);
    let node = neighbour.node[0];
    let kept = [
        ("tcp", Transport::Tcp, SocketAddr::new(node, HTTP)),
        ("udp", Transport::Udp, SocketAddr::new(node, DNS)),
    ];
    let mut ask = |name: &str, transport, to| {
        let attempts = prober.send_on(name, transport, to, 3).unwrap();
        attempts.last().unwrap().answer_as(to).unwrap()
    };
    let before = kept.map(|(name, transport, to)| ask(name, transport, to).ip());
    agent
        .apply_and_sync(FILE, &cluster(neighbour, &[2]))
        .unwrap();
    let [tcp, udp] = kept.map(|(name, transport, to)| ask(name, transport, to).ip());
    assert_eq!(tcp, before[0], "a connection stays where it is");
    assert_ne!(udp, before[1], "the endpoint of datagrams is gone");
    let (_, transport, to) = kept[0];
    assert_ne!(ask("another", transport, to).ip(), before[0]);
}
