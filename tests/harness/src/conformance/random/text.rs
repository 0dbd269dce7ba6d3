//! A random cluster as a scenario file: what somebody needs who looks for the reason of a failure,
//! and the beginning of the file that keeps it from coming back.

use std::{fmt::Write as _, net::IpAddr};

use proxy_model::{
    EndpointSlice, IpFamily, IpNet, Node, NodePortSelection, Service, ServiceCidr, TrafficPolicy,
    oracle::Detector,
};
use serde_json::{Value, json};

use super::Walk;
use crate::scenario::Settings;

pub(super) fn heading(of: &Settings) -> String {
    let mut text = String::from("# What came of chance.\n\n-- settings --\n");
    settings(of, &mut text);
    text
}

pub(super) fn files(walk: &Walk) -> String {
    let mut text = String::from("\n-- apply cluster.yaml --\n");
    let services = walk.services.values().map(service);
    let slices = walk.slices.values().map(slice);
    let node = walk.node.iter().map(node);
    let ranges = walk.ranges.iter().map(ranges);
    for object in services.chain(slices).chain(node).chain(ranges) {
        let object = serde_json::to_string_pretty(&object)
            .expect("objects made of strings and numbers can be written");
        writeln!(text, "{object}\n---").expect("writing to a String cannot fail");
    }
    text
}

fn settings(settings: &Settings, text: &mut String) {
    let mut line = |name: &str, value: &str| {
        writeln!(text, "{name}: {value}").expect("writing to a String cannot fail");
    };
    line("node-addresses", &list(&settings.node_addresses));
    match &settings.model.node_ports {
        NodePortSelection::All => {}
        NodePortSelection::Primary => line("node-port-addresses", "primary"),
        NodePortSelection::Cidrs(cidrs) => line("node-port-addresses", &list(cidrs)),
    }
    let traffic = &settings.model.traffic;
    match &traffic.detector {
        Detector::None => {}
        Detector::ClusterCidr(cidrs) => {
            line("detect-local", &format!("ClusterCIDR {}", list(cidrs)));
        }
        Detector::NodeCidr => line("detect-local", "NodeCIDR"),
        Detector::BridgeInterface(name) => {
            line("detect-local", &format!("BridgeInterface {name}"));
        }
        Detector::InterfaceNamePrefix(prefix) => {
            line("detect-local", &format!("InterfaceNamePrefix {prefix}"));
        }
    }
    if traffic.masquerade_all {
        line("masquerade-all", "true");
    }
}

fn list<T: ToString>(items: &[T]) -> String {
    texts(items).join(",")
}

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

fn service(service: &Service) -> Value {
    let policy = |policy| match policy {
        TrafficPolicy::Cluster => "Cluster",
        TrafficPolicy::Local => "Local",
    };
    let ports: Vec<_> = service
        .ports
        .iter()
        .map(|port| {
            let mut value = json!({
                "name": &*port.name, "protocol": port.protocol.as_str(), "port": port.port
            });
            if let Some(node_port) = port.node_port {
                value["nodePort"] = json!(node_port);
            }
            value
        })
        .collect();
    let families: Vec<_> = service
        .cluster_ips
        .iter()
        .map(|ip| IpFamily::of(*ip).to_string())
        .collect();
    let mut spec = json!({
        "type": "LoadBalancer",
        "clusterIP": service.cluster_ips[0],
        "clusterIPs": service.cluster_ips,
        "ipFamilies": families,
        "internalTrafficPolicy": policy(service.internal_policy),
        "ports": ports,
    });
    if let Some(seconds) = service.affinity {
        spec["sessionAffinity"] = json!("ClientIP");
        spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
    }
    let mut ingress = Vec::new();
    if let Some(external) = &service.external {
        spec["externalTrafficPolicy"] = json!(policy(external.policy));
        spec["externalIPs"] = json!(external.ips);
        spec["loadBalancerSourceRanges"] = json!(texts(&external.source_ranges));
        let address = |ip: &IpAddr| json!({"ip": ip});
        ingress.extend(external.load_balancer_ips.iter().map(address));
    }
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": &*service.name.namespace, "name": &*service.name.name},
        "spec": spec,
        "status": {"loadBalancer": {"ingress": ingress}},
    })
}

fn slice(slice: &EndpointSlice) -> Value {
    let ports: Vec<_> = slice
        .ports
        .iter()
        .map(|port| {
            json!({"name": &*port.name, "protocol": port.protocol.as_str(), "port": port.port})
        })
        .collect();
    let endpoints: Vec<_> = slice
        .endpoints
        .iter()
        .map(|endpoint| {
            let conditions = endpoint.conditions;
            json!({
                "addresses": [endpoint.address],
                "nodeName": endpoint.node.as_deref(),
                "conditions": {
                    "ready": conditions.ready,
                    "serving": conditions.serving,
                    "terminating": conditions.terminating,
                },
            })
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": &*slice.name.namespace,
            "name": &*slice.name.name,
            "labels": {"kubernetes.io/service-name": &*slice.service.name},
        },
        "addressType": slice.family.to_string(),
        "ports": ports,
        "endpoints": endpoints,
    })
}

fn node(node: &Node) -> Value {
    let cidrs = texts(&node.pod_cidrs);
    let address = |ip: &IpAddr| json!({"type": "InternalIP", "address": ip});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": &*node.name},
        "spec": {"podCIDR": cidrs.first(), "podCIDRs": cidrs},
        "status": {"addresses": node.addresses.iter().map(address).collect::<Vec<_>>()},
    })
}

fn ranges(ranges: &ServiceCidr) -> Value {
    let cidrs: Vec<String> = ranges.cidrs.iter().map(IpNet::to_string).collect();
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": &*ranges.name},
        "spec": {"cidrs": cidrs},
    })
}
