//! eBPF without a layer beneath: clients outside are served as the oracle has it, what cannot be served says so,
//! and nothing is routed on that was for a Service.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use proxy_tests::{
    Agent, Prober, Traffic,
    agent::{LIMIT, LogLine},
    pod::{Load, Transport},
    process::Process,
    shop::{balanced, frontend, frontend6},
    world::NODE_ADDRESSES,
};
use serde_json::{Value, json};

use super::{
    asked::asked,
    kept::Site,
    rig::{FILE, HTTP, alone, on_node, prober, served},
};
use crate::serving::get;

/// How long a request may take that nobody answers.
const UNANSWERED: Duration = Duration::from_millis(300);

/// So that clients outside are masqueraded on their way to ClusterIPs, too.
const PODS: &str = "--cluster-cidr=10.244.0.0/16,fd00:10:244::/64";

/// A rule that programs on devices bypass.
const FIREWALL: &str = "table inet firewall { chain early { type filter hook prerouting priority raw; \
    tcp dport 30999 drop; }; }";

fn serve<'a>(site: &'a Site, objects: &str, arguments: &[&str]) -> Agent<'a> {
    let mut options = alone();
    let further = arguments.iter().map(|one| (*one).to_owned());
    options.arguments.extend(further);
    Agent::start(&site.shop.world, options, &[(FILE, objects)]).unwrap()
}

fn told(agent: &Agent<'_>) -> Value {
    let mut command = agent.command("state").unwrap();
    command.args(["-o", "json"]);
    let done = Process::run("proxy-agent", command, LIMIT).unwrap();
    serde_json::from_str(&done.stdout).unwrap()
}

/// Whether it says that nobody serves clients outside.
fn is_lacking(agent: &Agent<'_>) -> bool {
    let told = told(agent);
    let mut lacks = told["agent"]["lacks"].as_array().unwrap().iter();
    lacks.any(|one| one["capability"] == "external-traffic")
}

/// Waits for this message about clients outside.
fn says(agent: &mut Agent<'_>, message: &str) {
    let is_it = |line: &LogLine| {
        line.message() == Some(message) && line.text("capability") == Some("external-traffic")
    };
    agent.wait_for_line(message, is_it).unwrap();
}

/// Waits until the health check node port answers so.
fn load_balancers_hear(site: &Site, wanted: u16) {
    let [address, _] = NODE_ADDRESSES;
    let at = SocketAddr::new(address, 31999).to_string();
    let deadline = Instant::now() + LIMIT;
    loop {
        let (status, body) = get(&site.shop, &at, "/");
        if status == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{status} {body}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The endpoint that answers, and what it sees.
fn ask(prober: &mut Prober, transport: Transport, to: SocketAddr) -> (String, SocketAddr) {
    let attempt = prober.send(transport, to, 1).unwrap().remove(0);
    let answer = attempt.answer_as(to);
    let answer = answer.unwrap_or_else(|error| panic!("{to}: {error}"));
    (answer.to_string(), attempt.client.unwrap())
}

#[test]
fn without_a_layer_beneath_clients_outside_are_served_and_nothing_of_it_is_lacking() {
    let Some(site) = Site::build_alone() else {
        return;
    };
    let mut agent = serve(&site, &site.objects(true), &[PODS]);
    served(&mut agent, "ext1");
    assert!(!is_lacking(&agent));
    // For processes of the node.
    let missing = told(&agent)["services"][0]["missing"].clone();
    assert_eq!(missing, json!(["source-ranges"]));
    let mut client = prober(&site.neighbour);
    let own = site.shop.world.node().addresses();
    for (transport, to) in site.all() {
        let (_, seen) = ask(&mut client, transport, to);
        assert!(own.contains(&seen.ip()), "{to}: {seen}");
        assert!(seen.port() >= 32768, "{to}: {seen}");
    }
    // A pod here dials as before.
    let mut inside = Prober::start(&site.shop.client).unwrap();
    ask(&mut inside, Transport::Tcp, frontend(1, 80));
    ask(&mut inside, Transport::Udp, frontend6(1, 53));
}

#[test]
fn without_a_layer_beneath_what_cannot_be_served_is_refused_here_or_hears_nothing() {
    let Some(site) = Site::build_alone() else {
        return;
    };
    let objects = site.objects(true);
    let without: String = objects
        .split_inclusive("---\n")
        .filter(|object| !object.contains("kind: EndpointSlice"))
        .collect();
    assert!(without.contains("kind: Service") && without != objects);
    let mut agent = serve(&site, &without, &[]);
    served(&mut agent, "ext1");
    let mut client = prober(&site.neighbour);
    // To the node itself: its own stack refuses.
    for ip in NODE_ADDRESSES {
        let attempts = client.send(Transport::Tcp, SocketAddr::new(ip, HTTP), 3);
        for attempt in attempts.unwrap() {
            assert_eq!(
                attempt.error.as_deref(),
                Some("connect ECONNREFUSED"),
                "{attempt:?}"
            );
        }
    }
    // Others would be sent back to where they came from.
    for ip in balanced(1) {
        let to = SocketAddr::new(ip, 80);
        let attempts = client.send_within(UNANSWERED, Transport::Tcp, to, 3);
        for attempt in attempts.unwrap() {
            assert!(attempt.answer_as(to).is_err(), "{attempt:?}");
            assert_ne!(
                attempt.error.as_deref(),
                Some("connect ECONNREFUSED"),
                "{attempt:?}"
            );
        }
    }
    agent.apply_and_sync(FILE, &objects).unwrap();
    for (transport, to) in site.all() {
        ask(&mut client, transport, to);
    }
}

#[test]
fn without_a_layer_beneath_it_is_told_when_clients_outside_are_not_served() {
    let Some(site) = Site::build() else {
        return;
    };
    let to_local =
        "  type: LoadBalancer\n  externalTrafficPolicy: Local\n  healthCheckNodePort: 31999\n";
    let objects = site
        .objects(true)
        .replace("  type: LoadBalancer\n", to_local);
    let mut agent = serve(&site, &objects, &[]);
    served(&mut agent, "ext1");
    assert!(!is_lacking(&agent));
    load_balancers_hear(&site, 200);
    on_node(&site.shop, "nft", &[FIREWALL]);
    says(&mut agent, "capability gap");
    assert!(is_lacking(&agent));
    load_balancers_hear(&site, 503);
    on_node(&site.shop, "nft", &["delete", "table", "inet", "firewall"]);
    says(&mut agent, "capability gap closed");
    assert!(!is_lacking(&agent));
    load_balancers_hear(&site, 200);

    agent.terminate().unwrap();
    drop(agent);
    let agent = serve(&site, &site.objects(true), &["--tc=off"]);
    assert!(is_lacking(&agent));
}

#[test]
fn without_a_layer_beneath_no_connection_waits_for_a_new_port_of_the_bridge_or_a_new_agent() {
    let Some(site) = Site::build_alone() else {
        return;
    };
    let mut agent = serve(&site, &site.objects(true), &[]);
    served(&mut agent, "ext1");
    let to = SocketAddr::new(site.neighbour.node[0], HTTP);
    let load = Load {
        name: "all".to_owned(),
        transport: Transport::Tcp,
        to,
        threads: 2,
        pause: Duration::from_micros(500),
        keep: false,
    };
    let mut traffic = Traffic::start("outside", &site.neighbour.host, vec![load]).unwrap();
    let node = site.shop.world.node().netns();
    for number in 0..4 {
        // Its other end is up, and nobody is there.
        let port = format!("more{number}");
        node.ip(&format!(
            "link add {port} type veth peer name {port}x\nlink set {port} master br0 up\nlink set {port}x up\n"
        ))
        .unwrap();
        traffic.goes_on(&port).unwrap();
    }
    for round in 0..2 {
        agent.kill().unwrap();
        traffic.goes_on("killed").unwrap();
        agent.launch().unwrap();
        served(&mut agent, "ext1");
        traffic.goes_on(&format!("started again, {round}")).unwrap();
    }
    traffic.stop().unwrap();
    // Those would have been sent again, a second later.
    let counted = asked(&site.shop, &agent, &["stats", "--output", "json"]);
    let counted: Value = serde_json::from_str(&counted).unwrap();
    assert_eq!(counted["packets"], json!([]));
}
