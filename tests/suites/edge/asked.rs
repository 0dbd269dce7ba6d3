//! `conntrack`: connections from outside are listed, counted and ended, with and without an agent.

use std::{
    net::SocketAddr,
    process::{Command, Output},
    thread,
    time::Duration,
};

use proxy_tests::{
    Agent, Prober, Shop, agent,
    pod::{Load, Transport},
};
use serde_json::Value;

use super::rig::{
    DNS, FILE, HTTP, Site, add_others_port, can_run, cluster, options, prober, served,
};

/// Connections of a load.
const THREADS: u32 = 4;

/// What `conntrack ARGUMENTS` of the node prints.
fn run(shop: &Shop, agent: &Agent<'_>, arguments: &[&str]) -> Output {
    let mut command = Command::new(agent::path().unwrap());
    command.arg("conntrack").args(arguments);
    command.arg("--pin-dir").arg(agent.pins().path());
    let node = shop.world.node().netns();
    node.run(|| command.output()).unwrap().unwrap()
}

/// The same, if it succeeds.
pub fn asked(shop: &Shop, agent: &Agent<'_>, arguments: &[&str]) -> String {
    let output = run(shop, agent, arguments);
    let [text, errors] = [output.stdout, output.stderr].map(|out| String::from_utf8(out).unwrap());
    assert!(output.status.success(), "{arguments:?}: {text}{errors}");
    text
}

/// The flows that `list ARGUMENTS` knows.
pub fn listed(shop: &Shop, agent: &Agent<'_>, arguments: &[&str]) -> Vec<Value> {
    let arguments = [&["list", "--output", "json"], arguments].concat();
    let json: Value = serde_json::from_str(&asked(shop, agent, &arguments)).unwrap();
    json["flows"].as_array().unwrap().clone()
}

/// Sends requests on connections that stay, and says which endpoint answered.
pub fn ask(prober: &mut Prober, name: &str, transport: Transport, to: SocketAddr) -> SocketAddr {
    let attempts = prober.send_on(name, transport, to, 3).unwrap();
    let answer = attempts.last().unwrap().answer_as(to);
    answer.unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn connections_from_outside_are_listed_counted_and_ended() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[1, 2, 3]);
    let (shop, neighbour) = (&site.shop, &site.neighbour);
    assert_eq!(listed(shop, &agent, &[]), [] as [Value; 0]);
    let mut prober = prober(neighbour);
    let kinds = [
        (Transport::Tcp, HTTP, "TCP", "http"),
        (Transport::Udp, DNS, "UDP", "dns"),
    ];
    let mut expected = Vec::new();
    for (family, ip) in neighbour.node.into_iter().enumerate() {
        for (transport, port, protocol, name) in kinds {
            let to = SocketAddr::new(ip, port);
            let endpoint = ask(&mut prober, &format!("{name}{family}"), transport, to);
            let service = format!("shop/s1:{name}");
            expected.push((to, protocol, neighbour.addresses[family], endpoint, service));
        }
    }

    let flows = listed(shop, &agent, &[]);
    assert_eq!(flows.len(), expected.len(), "{flows:#?}");
    for (to, protocol, client, endpoint, service) in &expected {
        let dialled = |flow: &&Value| flow["frontend"] == *to.to_string();
        let flow = flows.iter().find(dialled).unwrap();
        let said: SocketAddr = flow["client"].as_str().unwrap().parse().unwrap();
        assert_eq!(said.ip(), *client, "{flow}");
        assert_eq!(flow["protocol"], **protocol, "{flow}");
        assert_eq!(flow["endpoint"], *endpoint.to_string(), "{flow}");
        assert_eq!(flow["service"], **service, "{flow}");
        assert_eq!(flow["state"], "established", "{flow}");
        assert!(flow["idleSeconds"].as_u64().unwrap() < 60, "{flow}");
    }
    let text = asked(shop, &agent, &["list", "--service", "shop/s1"]);
    assert_eq!(text.lines().count(), 1 + expected.len(), "{text}");
    assert!(text.contains(&expected[0].3.to_string()), "{text}");
    let nobody = ["--client", "192.0.2.250"];
    assert_eq!(listed(shop, &agent, &nobody), [] as [Value; 0]);
    let nothing = ["--service", "shop/s2"];
    assert_eq!(listed(shop, &agent, &nothing), [] as [Value; 0]);

    let counted = asked(shop, &agent, &["stats", "--output", "json"]);
    let counted: Value = serde_json::from_str(&counted).unwrap();
    assert_eq!(counted["flows"], 4, "{counted:#}");
    assert_eq!(counted["track"]["used"], 4, "{counted:#}");
    assert_eq!(counted["services"][1]["service"], "shop/s1:http");
    assert_eq!(counted["services"][1]["flows"], 2, "{counted:#}");

    // It takes no agent.
    agent.kill().unwrap();
    let client = neighbour.addresses[0].to_string();
    let ended = asked(shop, &agent, &["flush", "--client", &client]);
    assert_eq!(ended, "ended 2 connections\n");
    let left = listed(shop, &agent, &[]);
    assert_eq!(left.len(), 2, "{left:#?}");
    let (http, dns) = (expected[0].0, expected[1].0);
    let broken = prober.send_on("http0", Transport::Tcp, http, 1).unwrap();
    assert!(broken[0].answer_as(http).is_err(), "{broken:?}");
    // Datagrams begin anew: one answer is not enough for a place in TRACK.
    let anew = prober.send_on("dns0", Transport::Udp, dns, 1).unwrap();
    anew[0].answer_as(dns).unwrap();
    let again = listed(shop, &agent, &["--client", &client]);
    assert_eq!(again.len(), 1, "{again:#?}");
    assert_eq!(again[0]["frontend"], *dns.to_string());
    assert_eq!(again[0]["state"], "answered");

    let ended = asked(shop, &agent, &["flush", "--service", "shop/s1"]);
    assert_eq!(ended, "ended 3 connections\n");
    assert_eq!(listed(shop, &agent, &[]), [] as [Value; 0]);
}

#[test]
fn connections_under_load_end_for_good() {
    let Some(site) = Site::build() else {
        return;
    };
    let agent = site.serve(&[1]);
    let (shop, neighbour) = (&site.shop, &site.neighbour);
    let loads = neighbour.node.map(|ip| Load {
        name: format!("to {ip}"),
        transport: Transport::Tcp,
        to: SocketAddr::new(ip, HTTP),
        threads: THREADS,
        pause: Duration::from_micros(200),
        keep: true,
    });
    let names = loads.clone().map(|load| load.name);
    let mut prober = prober(neighbour);
    for load in loads {
        prober.load_start(load).unwrap();
    }
    for name in &names {
        prober.load_wait(name, 1000).unwrap();
    }
    let ended = asked(shop, &agent, &["flush", "--all"]);
    assert_eq!(ended, format!("ended {} connections\n", 2 * THREADS));
    // What is left of a flow is put back within a second if it is used.
    thread::sleep(Duration::from_secs(2));
    assert_eq!(listed(shop, &agent, &[]), [] as [Value; 0]);
    for name in &names {
        let report = prober.load_stop(name).unwrap();
        assert!(!report.failures.is_empty(), "{report:?}");
    }
}

#[test]
fn ended_connections_make_room_although_no_agent_counts() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let neighbour = shop.world.neighbour(1).unwrap();
    let objects = cluster(&neighbour, &[1]);
    let small = options(&["--map-size=TRACK=2"]);
    let mut agent = Agent::start(&shop.world, small, &[(FILE, &*objects)]).unwrap();
    served(&mut agent, "ext1");
    let to = SocketAddr::new(neighbour.node[0], HTTP);
    let mut prober = prober(&neighbour);
    for name in ["first", "second", "left to the layer beneath"] {
        ask(&mut prober, name, Transport::Tcp, to);
    }
    assert_eq!(listed(&shop, &agent, &[]).len(), 2);
    agent.kill().unwrap();
    let ended = asked(&shop, &agent, &["flush", "--all"]);
    assert_eq!(ended, "ended 2 connections\n");
    ask(&mut prober, "later", Transport::Tcp, to);
    assert_eq!(listed(&shop, &agent, &[]).len(), 1);
}

#[test]
fn connections_are_named_although_service_maps_were_rebuilt() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[1]);
    let (shop, neighbour) = (&site.shop, &site.neighbour);
    let to = SocketAddr::new(neighbour.node[0], HTTP);
    let mut prober = prober(neighbour);
    ask(&mut prober, "http", Transport::Tcp, to);
    agent.terminate().unwrap();
    let larger = "--map-size=SERVICES=100000".to_owned();
    agent.options().arguments.push(larger);
    agent.launch().unwrap();
    let flows = listed(shop, &agent, &["--service", "shop/s1"]);
    assert_eq!(flows.len(), 1, "{flows:#?}");
    agent
        .apply_and_sync(FILE, &without_services(&cluster(neighbour, &[1])))
        .unwrap();
    let flows = listed(shop, &agent, &[]);
    assert_eq!(flows[0]["service"], Value::Null, "{flows:#?}");
}

/// The objects before the first Service.
fn without_services(objects: &str) -> String {
    let (before, _) = objects.split_once("kind: Service").unwrap();
    before.rsplit_once("---").unwrap().0.to_owned()
}

#[test]
fn packets_that_are_left_to_the_layer_beneath_are_counted_by_device() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let neighbour = shop.world.neighbour(1).unwrap();
    let objects = cluster(&neighbour, &[1]).replace("externalTrafficPolicy: Local", "");
    add_others_port(&shop);
    let mut agent = Agent::start(&shop.world, options(&[]), &[(FILE, &*objects)]).unwrap();
    served(&mut agent, "ext1");
    let to = SocketAddr::new(neighbour.node[0], HTTP);
    ask(&mut prober(&neighbour), "http", Transport::Tcp, to);
    assert_eq!(listed(&shop, &agent, &[]), [] as [Value; 0]);
    let text = asked(&shop, &agent, &["stats"]);
    let counted = |line: &str| line.split_whitespace().eq(["ext1", "no-source", "1"]);
    assert!(text.lines().any(counted), "{text}");
}

#[test]
fn where_nothing_is_translated_that_is_said() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let neighbour = shop.world.neighbour(1).unwrap();
    let objects = cluster(&neighbour, &[1]);
    let agent = Agent::start(&shop.world, options(&["--tc=off"]), &[(FILE, &*objects)]).unwrap();
    let output = run(&shop, &agent, &["list"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("--tc is off"), "{errors}");
}
