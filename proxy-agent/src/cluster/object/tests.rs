//! The types here against the generated ones of `k8s-openapi`, on what a real API server sent.

use std::{collections::BTreeMap, fs, path::Path};

use k8s_openapi::{
    api::{core::v1 as core, discovery::v1 as discovery, networking::v1 as networking},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn read(name: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    fs::read_to_string(data.join(name)).unwrap()
}

/// Every object in the captured answers, bookmarks too, and in the captured cluster.
fn captured(kind: &str) -> Vec<Value> {
    let mut objects = Vec::new();
    for name in [
        "api-server/api-services-list.json",
        "api-server/api-services-page1.json",
        "api-server/api-endpointslices-list.json",
        "cluster-mixed.json",
    ] {
        let mut list: Value = serde_json::from_str(&read(name)).unwrap();
        let items_are = list["kind"].as_str().unwrap().replace("List", "");
        for item in list["items"].as_array_mut().unwrap() {
            if item["kind"].as_str().unwrap_or(&items_are) == kind {
                objects.push(item.take());
            }
        }
    }
    for name in [
        "api-server/api-services-watch.ndjson",
        "api-server/api-endpointslices-watch.ndjson",
        "api-server/api-endpointslices-watchlist.ndjson",
    ] {
        for line in read(name).lines() {
            let mut event: Value = serde_json::from_str(line).unwrap();
            if event["object"]["kind"] == kind {
                objects.push(event["object"].take());
            }
        }
    }
    objects
}

/// Decodes each object twice and compares what `project` and `expected` make of the two.
fn compare<Ours, Theirs>(
    objects: &[Value],
    project: impl Fn(&Ours) -> Value,
    expected: impl Fn(&Theirs) -> Value,
) where
    Ours: DeserializeOwned,
    Theirs: DeserializeOwned,
{
    assert!(!objects.is_empty());
    for object in objects {
        let text = object.to_string();
        let Map(ours) = serde_json::from_str::<Map<Ours>>(&text).unwrap();
        let theirs = serde_json::from_str(&text).unwrap();
        assert_eq!(project(&ours), expected(&theirs), "{object}");
    }
}

fn metadata(ours: &Metadata) -> Value {
    json!({
        "name": ours.name,
        "namespace": ours.namespace,
        "version": ours.resource_version,
        "labels": [
            ours.labels.proxy_name, ours.labels.headless, ours.labels.service_name, ours.labels.zone
        ],
        "triggered": ours.annotations.last_change_trigger_time,
        "deleted": ours.deletion_timestamp.is_some(),
    })
}

fn generated_metadata(theirs: &ObjectMeta) -> Value {
    let get = |map: &Option<BTreeMap<String, String>>, key: &str| {
        map.as_ref().and_then(|map| map.get(key).cloned())
    };
    json!({
        "name": theirs.name,
        "namespace": theirs.namespace,
        "version": theirs.resource_version,
        "labels": [
            get(&theirs.labels, "service.kubernetes.io/service-proxy-name"),
            get(&theirs.labels, "service.kubernetes.io/headless"),
            get(&theirs.labels, "kubernetes.io/service-name"),
            get(&theirs.labels, "topology.kubernetes.io/zone"),
        ],
        "triggered": get(&theirs.annotations, "endpoints.kubernetes.io/last-change-trigger-time"),
        "deleted": theirs.deletion_timestamp.is_some(),
    })
}

#[test]
fn services_agree_with_the_generated_type() {
    let ours =
        |service: &Service| {
            let spec = service.spec.as_ref().map(|spec| {
            let port = |port: &ServicePort| {
                json!([port.name, port.protocol, port.port.unwrap_or(0), port.node_port])
            };
            json!({
                "type": spec.r#type,
                "addresses": [spec.cluster_ip.as_slice(), &spec.cluster_ips, &spec.external_ips],
                "ports": spec.ports.iter().map(port).collect::<Vec<_>>(),
                "policy": spec.internal_traffic_policy,
                "affinity": spec.session_affinity,
                "timeout": spec.session_affinity_config.client_ip.timeout_seconds,
                "external": spec.external_traffic_policy,
                "ranges": spec.load_balancer_source_ranges,
                "health": spec.health_check_node_port,
            })
        });
            let ingress = service.status.load_balancer.ingress.iter();
            json!([
                metadata(&service.metadata),
                spec,
                ingress
                    .map(|entry| json!([entry.ip, entry.ip_mode]))
                    .collect::<Vec<_>>(),
            ])
        };
    let generated = |service: &core::Service| {
        let spec = service.spec.as_ref().map(|spec| {
            let port = |port: &core::ServicePort| {
                json!([port.name, port.protocol, port.port, port.node_port])
            };
            json!({
                "type": spec.type_,
                "addresses": [
                    spec.cluster_ip.as_slice(),
                    spec.cluster_ips.as_deref().unwrap_or_default(),
                    spec.external_ips.as_deref().unwrap_or_default(),
                ],
                "ports": spec.ports.iter().flatten().map(port).collect::<Vec<_>>(),
                "policy": spec.internal_traffic_policy,
                "affinity": spec.session_affinity,
                "timeout": spec
                    .session_affinity_config
                    .as_ref()
                    .and_then(|config| config.client_ip.as_ref()?.timeout_seconds),
                "external": spec.external_traffic_policy,
                "ranges": spec.load_balancer_source_ranges.as_deref().unwrap_or_default(),
                "health": spec.health_check_node_port,
            })
        });
        let balancer = service
            .status
            .as_ref()
            .and_then(|status| status.load_balancer.as_ref());
        let ingress = balancer
            .and_then(|balancer| balancer.ingress.as_deref())
            .unwrap_or_default();
        json!([
            generated_metadata(&service.metadata),
            spec,
            ingress
                .iter()
                .map(|entry| json!([entry.ip, entry.ip_mode]))
                .collect::<Vec<_>>(),
        ])
    };
    compare(&captured("Service"), ours, generated);
}

#[test]
fn slices_agree_with_the_generated_type() {
    let names = |hints: &[Hint]| -> Vec<_> {
        hints
            .iter()
            .map(|hint| hint.name.clone().unwrap_or_default())
            .collect()
    };
    let ours = |slice: &EndpointSlice| {
        let endpoint = |endpoint: &Endpoint| {
            let conditions = &endpoint.conditions;
            json!({
                "addresses": endpoint.addresses,
                "conditions": [conditions.ready, conditions.serving, conditions.terminating],
                "node": endpoint.node_name,
                "hints": [names(&endpoint.hints.for_zones), names(&endpoint.hints.for_nodes)],
            })
        };
        let port = |port: &EndpointPort| json!([port.name, port.protocol, port.port]);
        json!([
            metadata(&slice.metadata),
            slice.address_type.as_deref().unwrap_or_default(),
            slice.ports.iter().map(port).collect::<Vec<_>>(),
            slice.endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        ])
    };
    let generated = |slice: &discovery::EndpointSlice| {
        let endpoint = |endpoint: &discovery::Endpoint| {
            let conditions = endpoint.conditions.clone().unwrap_or_default();
            let hints = endpoint.hints.clone().unwrap_or_default();
            json!({
                "addresses": endpoint.addresses,
                "conditions": [conditions.ready, conditions.serving, conditions.terminating],
                "node": endpoint.node_name,
                "hints": [
                    hints.for_zones.iter().flatten().map(|hint| &hint.name).collect::<Vec<_>>(),
                    hints.for_nodes.iter().flatten().map(|hint| &hint.name).collect::<Vec<_>>(),
                ],
            })
        };
        let port = |port: &discovery::EndpointPort| json!([port.name, port.protocol, port.port]);
        json!([
            generated_metadata(&slice.metadata),
            slice.address_type,
            slice.ports.iter().flatten().map(port).collect::<Vec<_>>(),
            slice
                .endpoints
                .iter()
                .flatten()
                .map(endpoint)
                .collect::<Vec<_>>(),
        ])
    };
    compare(&captured("EndpointSlice"), ours, generated);
}

#[test]
fn nodes_agree_with_the_generated_type() {
    let ours = |node: &Node| {
        let address = |address: &NodeAddress| json!([address.r#type, address.address]);
        json!([
            metadata(&node.metadata),
            node.spec.pod_cidr,
            node.spec.pod_cidrs,
            node.spec
                .taints
                .iter()
                .map(|taint| taint.key.clone())
                .collect::<Vec<_>>(),
            node.status
                .addresses
                .iter()
                .map(address)
                .collect::<Vec<_>>(),
        ])
    };
    let generated = |node: &core::Node| {
        let spec = node.spec.clone().unwrap_or_default();
        let status = node.status.clone().unwrap_or_default();
        let address = |address: &core::NodeAddress| json!([address.type_, address.address]);
        json!([
            generated_metadata(&node.metadata),
            spec.pod_cidr,
            spec.pod_cidrs.unwrap_or_default(),
            spec.taints
                .iter()
                .flatten()
                .map(|taint| taint.key.clone())
                .collect::<Vec<_>>(),
            status
                .addresses
                .iter()
                .flatten()
                .map(address)
                .collect::<Vec<_>>(),
        ])
    };
    let mut leaving = json!({"metadata": {
        "name": "leaving",
        "deletionTimestamp": "2026-01-05T09:30:00Z",
        "labels": {"topology.kubernetes.io/zone": "zone-a"},
    }});
    leaving["spec"] = json!({
        "podCIDR": "10.244.0.0/24",
        "podCIDRs": ["10.244.0.0/24", "fd00::/64"],
        "taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}],
    });
    let mut nodes = captured("Node");
    nodes.push(leaving);
    compare(&nodes, ours, generated);
}

#[test]
fn service_cidrs_agree_with_the_generated_type() {
    let ours = |cidr: &ServiceCidr| json!([metadata(&cidr.metadata), cidr.spec.cidrs]);
    let generated = |cidr: &networking::ServiceCIDR| {
        let spec = cidr.spec.clone().unwrap_or_default();
        json!([
            generated_metadata(&cidr.metadata),
            spec.cidrs.unwrap_or_default()
        ])
    };
    let object = json!({
        "metadata": {"name": "kubernetes", "resourceVersion": "7", "managedFields": [{}]},
        "spec": {"cidrs": ["10.96.0.0/16", "fd00:10:96::/112"]},
        "status": {"conditions": []},
    });
    compare(&[object], ours, generated);
}

/// A bookmark's object has `null` where others have lists.
#[test]
fn null_is_the_same_as_absent() {
    fn text<T: DeserializeOwned + fmt::Debug>(object: &Value) -> String {
        format!(
            "{:?}",
            serde_json::from_value::<Map<T>>(object.clone()).unwrap()
        )
    }
    let nulls = json!({"metadata": null, "spec": null, "status": null, "ports": null,
        "addressType": null, "endpoints": null});
    assert_eq!(text::<Service>(&nulls), text::<Service>(&json!({})));
    assert_eq!(
        text::<EndpointSlice>(&nulls),
        text::<EndpointSlice>(&json!({}))
    );
    assert_eq!(text::<Node>(&nulls), text::<Node>(&json!({})));
    assert_eq!(text::<ServiceCidr>(&nulls), text::<ServiceCidr>(&json!({})));
    let inner = json!({
        "metadata": {"name": null, "labels": null, "annotations": null, "deletionTimestamp": null},
        "spec": {"ports": null, "clusterIPs": null, "externalIPs": null, "podCIDRs": null,
            "taints": null, "cidrs": null},
        "status": {"loadBalancer": null, "addresses": null},
        "endpoints": [{"addresses": null, "conditions": null, "hints": null}],
    });
    let absent = json!({"metadata": {}, "spec": {}, "status": {}, "endpoints": [{}]});
    assert_eq!(text::<Service>(&inner), text::<Service>(&absent));
    assert_eq!(
        text::<EndpointSlice>(&inner),
        text::<EndpointSlice>(&absent)
    );
    assert_eq!(text::<Node>(&inner), text::<Node>(&absent));
    assert_eq!(text::<ServiceCidr>(&inner), text::<ServiceCidr>(&absent));
}

#[test]
fn what_must_be_a_map_is_no_list() {
    for object in [
        json!([]),
        json!({"metadata": []}),
        json!({"metadata": {"labels": ["a"]}}),
        json!({"ports": [[]]}),
        json!({"ports": [null]}),
        json!({"ports": {}}),
    ] {
        let text = object.to_string();
        let error = serde_json::from_str::<Map<EndpointSlice>>(&text).unwrap_err();
        assert!(
            error.to_string().starts_with("invalid type: "),
            "{object}: {error}"
        );
    }
}
