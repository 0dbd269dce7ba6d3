//! What an agent writes on objects of the cluster, and how little of it.

use std::net::{SocketAddr, TcpListener};

use proxy_tests::requires::NFTABLES;

use super::*;
use crate::nftables::owner::TableOwner;

/// Ports that somebody else holds, each the health check node port of a Service.
const PORTS: std::ops::Range<u16> = 31_900..31_940;

/// Services that load balancers send traffic to, each of which needs what hooks cannot do.
fn balanced(port: u16) -> Value {
    let number = port - PORTS.start + 1;
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": format!("lb{number}"), "namespace": "shop"},
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": format!("10.96.9.{number}"),
            "clusterIPs": [format!("10.96.9.{number}")],
            "ipFamilies": ["IPv4"],
            "externalTrafficPolicy": "Local",
            "healthCheckNodePort": port,
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": port - 1_000}],
        },
    })
}

/// With all ports taken.
fn crowded() -> (Cluster, Vec<TcpListener>) {
    let cluster = Cluster::serving(&[1]);
    let take = |port| TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], port))).unwrap();
    let netns = cluster.shop.world.node().netns();
    let taken = netns.run(|| PORTS.map(take).collect()).unwrap();
    (cluster, taken)
}

/// The first event of this kind, as soon as it is there.
fn until_written(cluster: &Cluster, reason: &str) -> Value {
    let written = |_: &proxy_tests::api_server::Sight| {
        let mut events = cluster.server.events().into_iter();
        events.find(|event| event["reason"] == reason)
    };
    cluster.server.wait(reason, written).unwrap()
}

#[test]
fn operators_see_on_services_and_the_node_what_is_wrong_and_a_storm_is_a_handful() {
    if !requires::met("api_server", PRIVILEGED) {
        return;
    }
    let (cluster, _taken) = crowded();
    let level =
        "--log-level=info,proxy_agent::pipeline=debug,proxy_agent::cluster::kube::events=debug";
    let mut agent = cluster.masters(&[]);
    agent.options().arguments.push(level.to_owned());
    agent.launch().unwrap();
    cluster.server.apply(&balanced(PORTS.start)).unwrap();
    let event = until_written(&cluster, "FailedToStartServiceHealthcheck");
    assert_eq!(
        (&event["type"], &event["action"]),
        (&json!("Warning"), &json!("Listen"))
    );
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "namespace": "shop", "name": "lb1"});
    assert_eq!(event["regarding"], service);
    let note = event["note"].as_str().unwrap();
    let begins = "node node-a failed to start healthcheck \"shop/lb1\" on port 31900: ";
    assert!(note.starts_with(begins), "{note}");
    let event = until_written(&cluster, "ServicesNotServed");
    assert_eq!(event["regarding"]["name"], "node-a");
    assert!(
        event["note"].as_str().unwrap().contains("external-traffic"),
        "{event}"
    );

    // However many of them there are.
    for port in PORTS.skip(1) {
        cluster.server.apply(&balanced(port)).unwrap();
    }
    for _ in 13..PORTS.len() {
        agent.wait_for("event left out").unwrap();
    }
    let events = cluster.server.events();
    assert!((3..=13).contains(&events.len()), "{events:#?}");
    // What serves is not in the way of it, nor it of that.
    until_http(&mut agent, &mut cluster.prober(), &[1]);
}

/// By those names kube-proxy's operators know them.
#[test]
fn operators_see_on_the_node_which_server_has_no_address() {
    if !requires::met("api_server", PRIVILEGED) {
        return;
    }
    let cluster = Cluster::serving(&[1]);
    let take = |port| TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], port))).unwrap();
    let netns = cluster.shop.world.node().netns();
    let taken: Vec<_> = netns.run(|| [10_249, 10_256].map(take)).unwrap().into();
    let (mut agent, mut prober) = cluster.launch();
    for (reason, address) in [
        ("FailedToStartProxierHealthcheck", "0.0.0.0:10256"),
        ("FailedToStartMetricServer", "127.0.0.1:10249"),
    ] {
        let event = until_written(&cluster, reason);
        assert_eq!(event["type"], "Warning");
        assert_eq!(event["regarding"]["kind"], "Node");
        assert_eq!(event["regarding"]["name"], "node-a");
        let note = event["note"].as_str().unwrap();
        assert!(note.contains(address), "{note}");
    }
    until_http(&mut agent, &mut prober, &[1]);
    drop(taken);
    for _ in 0..2 {
        agent.wait_for("address bound").unwrap();
    }
    assert_eq!(cluster.get(10_256, "/healthz").0, 200);
}

#[test]
fn operators_see_on_the_node_that_changes_are_not_in_force_and_when_they_are() {
    if !requires::met("api_server", PRIVILEGED) || !requires::met("api_server", NFTABLES) {
        return;
    }
    let cluster = Cluster::serving(&[1]);
    let mut agent = cluster.masters(&[]);
    let further = ["--proxy-mode=nftables", "--sync-period=200ms"];
    let further = further.map(str::to_owned);
    agent.options().arguments.extend(further);
    agent.launch().unwrap();
    let other = TableOwner::of(cluster.shop.world.node(), "ip6 culvert").unwrap();
    let event = until_written(&cluster, "ServiceProxyDegraded");
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["regarding"]["name"], "node-a");
    let note = event["note"].as_str().unwrap();
    assert!(note.contains("nftables"), "{note}");
    other.release().unwrap();
    let event = until_written(&cluster, "ServiceProxyRecovered");
    assert_eq!(event["type"], "Normal");
}

#[test]
fn operators_see_on_the_node_that_a_changed_configuration_is_not_in_force_and_when_it_is() {
    if !requires::met("api_server", PRIVILEGED) {
        return;
    }
    let cluster = Cluster::serving(&[1]);
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |fields: &str| {
        let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
        std::fs::write(file.path(), format!("{head}{fields}")).unwrap();
    };
    write("");
    let mut agent = cluster.masters(&[]);
    let config = format!("--config={}", file.path().display());
    let further = [config, "--backend-order=ebpf".to_owned()];
    agent.options().arguments.extend(further);
    agent.launch().unwrap();
    write("detectLocalMode: Guess\n");
    let event = until_written(&cluster, "ConfigurationRefused");
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["regarding"]["name"], "node-a");
    let note = event["note"].as_str().unwrap();
    assert!(note.contains("detectLocalMode"), "{note}");
    write("");
    let event = until_written(&cluster, "ConfigurationAccepted");
    assert_eq!(event["type"], "Normal");
}

#[test]
fn without_the_right_to_write_events_that_is_told_once_and_nothing_else_is_different() {
    if !requires::met("api_server", PRIVILEGED) {
        return;
    }
    let (cluster, taken) = crowded();
    cluster.server.refuse_events(Some(403));
    let mut agent = cluster.masters(&[]);
    agent.launch().unwrap();
    for port in PORTS {
        cluster.server.apply(&balanced(port)).unwrap();
    }
    let told = agent.wait_for("events not written").unwrap();
    assert!(told.text("reason").unwrap().contains("403"), "{told:?}");
    let enough = |seen: &proxy_tests::api_server::Sight| {
        let refused = |one: &&Request| one.method == "POST" && one.status == 403;
        (seen.requests.iter().filter(refused).count() >= 5).then_some(())
    };
    cluster.server.wait("refused events", enough).unwrap();
    until_http(&mut agent, &mut cluster.prober(), &[1]);
    let told = agent.log().into_iter();
    let told = told.filter(|line| line.message() == Some("events not written"));
    assert_eq!(told.count(), 1);
    assert_eq!(cluster.server.events(), Vec::<Value>::new());
    drop(taken);
}
