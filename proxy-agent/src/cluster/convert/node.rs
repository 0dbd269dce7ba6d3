//! Nodes, and the cluster's ranges of ClusterIPs.

use std::net::IpAddr;

use proxy_model::{IpNet, Node, ServiceCidr};

use super::{Converted, Report, non_empty, parse_address};
use crate::cluster::{names::plain, object};

/// What the cluster autoscaler puts on a Node that it is about to remove (KEP-3836).
const TAINT_LEAVING: &str = "ToBeDeletedByClusterAutoscaler";

/// Converts a Node. One without a name is ignored.
pub fn node(object: &object::Node) -> Converted<Node> {
    let metadata = &object.metadata;
    let Some(name) = non_empty(metadata.name.as_deref()) else {
        return Converted::ignored();
    };
    let mut report = Report::about("Node", &name);
    let leaving = |taint: &object::Taint| taint.key.as_deref() == Some(TAINT_LEAVING);
    let value = Node {
        name: (*plain(name)).into(),
        zone: non_empty(metadata.labels.zone.as_deref()).map(Into::into),
        pod_cidrs: pod_cidrs(&object.spec, &mut report),
        addresses: addresses(&object.status.addresses, &mut report),
        eligible: metadata.deletion_timestamp.is_none() && !object.spec.taints.iter().any(leaving),
    };
    Converted {
        value: Some(value),
        diagnostics: report.diagnostics,
    }
}

fn pod_cidrs(spec: &object::NodeSpec, report: &mut Report) -> Vec<IpNet> {
    if spec.pod_cidrs.is_empty() {
        // Old or hand-written objects may have the singular only.
        let single = non_empty(spec.pod_cidr.as_deref()).into_iter();
        return ranges(single, report, |_| "spec.podCIDR".to_owned());
    }
    let texts = spec.pod_cidrs.iter().map(String::as_str);
    ranges(texts, report, |index| format!("spec.podCIDRs[{index}]"))
}

/// The addresses that reach the node itself, internal ones first: the first of a family is the
/// node's address, as for kube-proxy. Names are no business of a proxy.
fn addresses(objects: &[object::NodeAddress], report: &mut Report) -> Vec<IpAddr> {
    let (mut internal, mut external) = (Vec::new(), Vec::new());
    for (index, object) in objects.iter().enumerate() {
        let addresses = match object.r#type.as_deref() {
            Some("InternalIP") => &mut internal,
            Some("ExternalIP") => &mut external,
            _ => continue,
        };
        match parse_address(object.address.as_deref().unwrap_or_default()) {
            Ok(address) => addresses.push(address),
            Err(message) => report.add(format!("status.addresses[{index}].address"), message),
        }
    }
    internal.append(&mut external);
    internal
}

/// Converts a `ServiceCIDR`. One without a name is ignored.
pub fn service_cidr(object: &object::ServiceCidr) -> Converted<ServiceCidr> {
    let Some(name) = non_empty(object.metadata.name.as_deref()) else {
        return Converted::ignored();
    };
    let mut report = Report::about("ServiceCIDR", &name);
    let texts = object.spec.cidrs.iter().map(String::as_str);
    let value = ServiceCidr {
        name: (*plain(name)).into(),
        cidrs: ranges(texts, &mut report, |index| format!("spec.cidrs[{index}]")),
    };
    Converted {
        value: Some(value),
        diagnostics: report.diagnostics,
    }
}

fn ranges<'a>(
    texts: impl Iterator<Item = &'a str>,
    report: &mut Report,
    field: impl Fn(usize) -> String,
) -> Vec<IpNet> {
    let mut ranges = Vec::new();
    for (index, text) in texts.enumerate() {
        if let Ok(range) = text.parse::<IpNet>() {
            ranges.push(range.trunc());
        } else {
            let message = format!("{text:?} is not a range of IP addresses: it is left out");
            report.add(field(index), message);
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use proxy_model::Diagnostic;
    use serde_json::{Value, json};

    use super::*;

    fn convert(object: Value) -> Converted<Node> {
        node(&serde_json::from_value(object).unwrap())
    }

    fn fields(diagnostics: &[Diagnostic]) -> Vec<String> {
        let field =
            |diagnostic: &Diagnostic| format!("{}: {}", diagnostic.object, diagnostic.field);
        diagnostics.iter().map(field).collect()
    }

    #[test]
    fn the_zone_is_the_label_unless_empty() {
        for (labels, zone) in [
            (
                json!({"topology.kubernetes.io/zone": "zone-a"}),
                Some("zone-a"),
            ),
            (json!({"topology.kubernetes.io/zone": ""}), None),
            (json!({"topology.kubernetes.io/region": "r1"}), None),
            (json!(null), None),
        ] {
            let expected = Node {
                name: "node-a".into(),
                zone: zone.map(Into::into),
                pod_cidrs: Vec::new(),
                addresses: Vec::new(),
                eligible: true,
            };
            assert_eq!(
                convert(json!({"metadata": {"name": "node-a", "labels": labels}})),
                Converted {
                    value: Some(expected),
                    diagnostics: vec![]
                }
            );
        }
    }

    #[test]
    fn ranges_and_addresses_that_make_sense_are_taken_over() {
        let converted = convert(json!({
            "metadata": {"name": "node-a"},
            "spec": {"podCIDR": "10.0.0.0/8", "podCIDRs": ["10.244.0.7/24", "x", "fd00:10::/64"]},
            "status": {"addresses": [
                {"type": "Hostname", "address": "node-a"},
                {"type": "ExternalIP", "address": "192.0.2.1"},
                {"type": "InternalIP", "address": "fd00::1"},
                {"type": "InternalIP", "address": "node-a.example.org"},
                {"type": "InternalDNS", "address": "192.0.2.2"},
                {"type": "InternalIP"},
            ]},
        }));
        let node = converted.value.unwrap();
        assert_eq!(
            node.pod_cidrs,
            ["10.244.0.0/24", "fd00:10::/64"].map(|range| range.parse().unwrap())
        );
        assert_eq!(
            node.addresses,
            ["fd00::1", "192.0.2.1"].map(|address| address.parse::<IpAddr>().unwrap()),
            "internal ones first"
        );
        assert_eq!(
            fields(&converted.diagnostics),
            [
                "Node node-a: spec.podCIDRs[1]",
                "Node node-a: status.addresses[3].address",
                "Node node-a: status.addresses[5].address",
            ]
        );
        let single = convert(json!({
            "metadata": {"name": "node-a"}, "spec": {"podCIDR": "10.244.0.0/24"},
        }));
        assert_eq!(
            single.value.unwrap().pod_cidrs,
            ["10.244.0.0/24".parse().unwrap()]
        );
    }

    #[test]
    fn a_node_that_is_about_to_go_is_not_eligible() {
        for (object, eligible) in [
            (json!({"metadata": {"name": "a"}}), true),
            (
                json!({"metadata": {"name": "a", "deletionTimestamp": "2026-01-05T09:30:00Z"}}),
                false,
            ),
            (
                json!({
                    "metadata": {"name": "a"},
                    "spec": {"taints": [{"key": "a"}, {"key": "ToBeDeletedByClusterAutoscaler"}]},
                }),
                false,
            ),
            (
                json!({"metadata": {"name": "a"}, "spec": {"taints": [{"key": "other"}, {}]}}),
                true,
            ),
        ] {
            let node = convert(object.clone()).value.unwrap();
            assert_eq!(node.eligible, eligible, "{object}");
        }
    }

    #[test]
    fn ranges_of_cluster_ips_are_taken_over() {
        let object = json!({
            "metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16", "10.96/16"]},
        });
        let converted = service_cidr(&serde_json::from_value(object).unwrap());
        let expected = ServiceCidr {
            name: "kubernetes".into(),
            cidrs: vec!["10.96.0.0/16".parse().unwrap()],
        };
        assert_eq!(converted.value, Some(expected));
        assert_eq!(
            fields(&converted.diagnostics),
            ["ServiceCIDR kubernetes: spec.cidrs[1]"]
        );
    }

    #[test]
    fn an_object_without_a_name_is_ignored() {
        assert_eq!(node(&object::Node::default()), Converted::ignored());
        assert_eq!(
            service_cidr(&object::ServiceCidr::default()),
            Converted::ignored()
        );
    }
}
