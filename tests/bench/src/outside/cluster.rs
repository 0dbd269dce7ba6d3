//! What the cluster of a way consists of, as objects, and as an administrator would write it by hand.

use std::{
    io::Write as _,
    net::IpAddr,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::place::Place;

/// Where the first endpoint listens: TCP, UDP, and TCP that only reads; and the NodePorts that lead there.
pub(super) const SERVERS: [u16; 3] = [9003, 9004, 9005];
pub(super) const NODE_PORTS: [u16; 3] = [30_080, 30_053, 30_090];
/// NodePorts behind which connections are held: one client has so many ports for each.
const HELD: u16 = 8;

const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "TCP"];

/// A port of a Service: its name, protocol, the endpoints' port, and the NodePort.
type Port = (String, &'static str, u16, u16);

/// The NodePorts behind which connections are held, and where all endpoints do so, as Services seldom share
/// them: to a port of an endpoint, a port of the client leads once.
pub(super) fn held() -> impl Iterator<Item = (u16, u16)> {
    (0..HELD).map(|number| (30_100 + number, 9100 + number))
}

/// The node, and the Services whose NodePorts are dialled.
pub(super) fn objects(node: IpAddr, place: Place) -> String {
    let addresses = place.addresses();
    let measured = (0..3).map(|at| -> Port {
        let name = format!("measured-{at}");
        (name, PROTOCOLS[at], SERVERS[at], NODE_PORTS[at])
    });
    let held = held().map(|(node_port, server)| -> Port {
        (format!("held-{node_port}"), "TCP", server, node_port)
    });
    let mut items = vec![json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-a" },
        "status": { "addresses": [{ "type": "InternalIP", "address": node }] }
    })];
    items.extend(service(
        place,
        "outside",
        1,
        &measured.collect::<Vec<_>>(),
        &addresses[..1],
    ));
    items.extend(service(
        place,
        "held",
        2,
        &held.collect::<Vec<_>>(),
        &addresses,
    ));
    json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string()
}

/// A Service of that kind, and its endpoints.
pub(super) fn service(
    place: Place,
    name: &str,
    number: u8,
    ports: &[Port],
    addresses: &[IpAddr],
) -> [Value; 2] {
    let cluster_ip = format!("10.96.240.{number}");
    let policy = if place.is_masqueraded() {
        "Cluster"
    } else {
        "Local"
    };
    let of_service: Vec<_> = ports
        .iter()
        .enumerate()
        .map(|(at, (name, protocol, server, node_port))| {
            json!({ "name": name, "protocol": protocol, "port": 80 + at, "targetPort": server,
                "nodePort": node_port })
        })
        .collect();
    let of_endpoints: Vec<_> = ports
        .iter()
        .map(|(name, protocol, server, _)| {
            json!({ "name": name, "protocol": protocol, "port": server })
        })
        .collect();
    let endpoints: Vec<_> = addresses
        .iter()
        .map(|address| {
            json!({ "addresses": [address], "conditions": { "ready": true },
                "nodeName": place.node() })
        })
        .collect();
    [
        json!({ "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": name, "namespace": "bench" },
            "spec": { "type": "NodePort", "externalTrafficPolicy": policy,
                "clusterIP": cluster_ip, "clusterIPs": [cluster_ip],
                "ipFamilies": ["IPv4"], "ports": of_service } }),
        json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": format!("{name}-a"), "namespace": "bench",
                "labels": { "kubernetes.io/service-name": name } },
            "addressType": "IPv4", "ports": of_endpoints, "endpoints": endpoints }),
    ]
}

/// As an administrator would write it for these ports.
pub(super) fn by_hand(place: Place) -> Result<()> {
    let addresses = place.addresses();
    let [first, ..] = addresses;
    let measured = (0..3).map(|at| {
        let (port, server) = (NODE_PORTS[at], SERVERS[at]);
        let protocol = PROTOCOLS[at].to_lowercase();
        format!("  {protocol} dport {port} dnat to {first}:{server}\n")
    });
    let numbered = addresses.iter().enumerate();
    let all: Vec<_> = numbered
        .map(|(at, address)| format!("{at} : {address}"))
        .collect();
    let (count, all) = (all.len(), all.join(", "));
    let held = held().map(|(port, server)| {
        format!("  tcp dport {port} dnat to numgen random mod {count} map {{ {all} }} : {server}\n")
    });
    let pre = measured.chain(held).collect::<Vec<_>>().concat();
    let post = if place.is_masqueraded() {
        "  ct status dnat masquerade fully-random\n"
    } else {
        ""
    };
    let rules = format!(
        "table ip by_hand {{\n chain pre {{\n  type nat hook prerouting priority dstnat;\n{pre} }}\n \
         chain post {{\n  type nat hook postrouting priority srcnat;\n{post} }}\n}}\n"
    );
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot start nft")?;
    let mut stdin = child.stdin.take().context("nft has no stdin")?;
    stdin
        .write_all(rules.as_bytes())
        .context("nft does not read")?;
    drop(stdin);
    ensure!(child.wait()?.success(), "nft refused:\n{rules}");
    Ok(())
}
