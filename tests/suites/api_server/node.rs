//! What the own Node object says, and each change of it: applied while the agent runs, which never
//! ends for it.

use std::{
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use proxy_tests::{agent::LIMIT, world::NODE_ADDRESSES};

use super::*;

/// The addresses that the node gets besides its own.
const MORE: &str = "10.250.0.1";

fn node(zone: &str, pods: &str, address: &str, taints: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "node-a", "labels": {"topology.kubernetes.io/zone": zone}},
        "spec": {"podCIDR": pods, "podCIDRs": [pods], "taints": taints},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    })
}

/// The endpoints 1 and 2 of the Service 1, for one zone each.
fn hinted() -> Value {
    let endpoint = |number: u8, zone: &str| {
        json!({
            "addresses": [http(number).ip()],
            "nodeName": "node-b",
            "conditions": {"ready": true},
            "hints": {"forZones": [{"name": zone}]},
        })
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": "s1-ipv4", "namespace": "shop",
            "labels": {"kubernetes.io/service-name": "s1"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [endpoint(1, "one"), endpoint(2, "two")],
    })
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn zone_pod_ranges_addresses_and_taints_are_applied_and_so_is_another_node_object() {
    if !requires::met("api_server", PRIVILEGED) {
        return;
    }
    let cluster = Cluster::serving(&[1, 2]);
    cluster.server.apply(&hinted()).unwrap();
    let own = NODE_ADDRESSES[0].to_string();
    let netns = cluster.shop.world.node().netns();
    netns
        .ip(&format!("address add {MORE}/24 dev br0\n"))
        .unwrap();
    let apply = |zone: &str, pods: &str, address: &str, taints: &Value| {
        cluster
            .server
            .apply(&node(zone, pods, address, taints))
            .unwrap();
    };
    let untainted = json!([]);
    apply("one", "10.244.0.0/24", &own, &untainted);
    let options = AgentOptions {
        source: vec!["--master".to_owned(), cluster.server.url()],
        arguments: [
            "--proxy-mode=ebpf",
            "--backend-order=ebpf",
            "--detect-local-mode=NodeCIDR",
            "--nodeport-addresses=primary",
        ]
        .map(str::to_owned)
        .into(),
        ..AgentOptions::default()
    };
    let mut agent = Agent::prepare(&cluster.shop.world, options, &[]).unwrap();
    agent.launch().unwrap();
    let pid = agent.pid();
    let mut prober = cluster.prober();
    until_http(&mut agent, &mut prober, &[1]);

    // The zone: by what answers.
    apply("two", "10.244.0.0/24", &own, &untainted);
    until_http(&mut agent, &mut prober, &[2]);

    // Ranges of pods, and the address at which NodePorts answer.
    let known = |agent: &Agent<'_>| state(agent)["node"].take();
    assert_eq!(known(&agent)["nodePortAddresses"], json!([own]));
    apply("two", "10.244.7.0/24", MORE, &untainted);
    until("the address is the new one", || {
        let node = known(&agent);
        let ranges = json!(["10.244.7.0/24"]);
        node["nodePortAddresses"] == json!([MORE])
            && node["podCIDRs"] == ranges
            && node["detectLocal"]["cidrs"] == ranges
    });
    assert_eq!(state(&agent)["agent"]["inForce"], true);

    // A taint, and its end.
    let leaving = json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
    apply("two", "10.244.7.0/24", MORE, &leaving);
    until("it is not eligible", || {
        cluster.get(10256, "/healthz").0 == 503
    });
    apply("two", "10.244.7.0/24", MORE, &untainted);
    until("it is eligible", || cluster.get(10256, "/healthz").0 == 200);

    // The object goes, with all that it said; endpoints of all zones serve then. Another one comes.
    cluster.server.delete(Kind::Node, "", "node-a").unwrap();
    agent.wait_for("node not found").unwrap();
    until_http(&mut agent, &mut prober, &[1, 2]);
    assert_eq!(known(&agent)["podCIDRs"], json!([]));
    assert_eq!(cluster.get(10256, "/livez").0, 200);
    assert_eq!(cluster.get(10256, "/readyz").0, 200);
    apply("one", "10.244.8.0/24", &own, &untainted);
    agent.wait_for("node found").unwrap();
    until_http(&mut agent, &mut prober, &[1]);
    let node = known(&agent);
    assert_eq!(
        (&node["nodePortAddresses"], &node["podCIDRs"][0]),
        (&json!([own]), &json!("10.244.8.0/24"))
    );
    assert_eq!(agent.pid(), pid);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.unwrap()), None::<Signal>).unwrap();
    agent.terminate().unwrap();
}
