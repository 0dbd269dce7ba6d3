//! Both forms, for small states and for a real cluster.

mod clients;

use std::path::Path;

use proxy_model::{
    Capability, ClusterEvent, Diagnostic, Node, ServiceCidr, Settings, compute,
    oracle::{Detector, Traffic},
};
use serde_json::{Value, json};

use super::*;
use crate::{
    backend::choice::{self, Choice},
    cluster::{convert, manifests, names::Names},
};

/// A Service `shop/{name}` with these ports and ClusterIPs.
fn service(name: &str, addresses: &[&str], policy: &str) -> ClusterEvent {
    let object = json!({
        "metadata": {"namespace": "shop", "name": name},
        "spec": {
            "clusterIPs": addresses,
            "internalTrafficPolicy": policy,
            "ports": [{"name": if name == "web" { "http" } else { "" }, "port": 80}],
        },
    });
    let converted = convert::service(
        &serde_json::from_value(object).unwrap(),
        &mut Names::default(),
    );
    ClusterEvent::ServiceUpserted(converted.value.unwrap())
}

/// The slice `shop/{name}` with these addresses, all on `node-b`.
fn slice(name: &str, port: &str, family: &str, addresses: &[&str]) -> ClusterEvent {
    let endpoint = |address: &&str| json!({"addresses": [address], "nodeName": "node-b"});
    let object = json!({
        "metadata": {
            "namespace": "shop",
            "name": format!("{name}-{family}"),
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": family,
        "ports": [{"name": port, "port": 8080}],
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
    });
    let converted = convert::slice(
        &serde_json::from_value(object).unwrap(),
        &mut Names::default(),
    );
    ClusterEvent::SliceUpserted(converted.value.unwrap())
}

fn node() -> Node {
    Node {
        name: "node-a".into(),
        zone: Some("zone-a".into()),
        pod_cidrs: vec!["10.0.0.0/24".parse().unwrap()],
        addresses: ["192.0.2.1", "2001:db8::1"]
            .map(|address| address.parse().unwrap())
            .into(),
        eligible: true,
    }
}

fn small() -> NodeState {
    let four = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
    let object = "Service shop/web";
    compute(
        "node-a",
        [
            service("web", &["10.96.0.1", "fd00::1"], "Cluster"),
            slice("web", "http", "IPv4", &four),
            slice("web", "http", "IPv6", &["fd00::a"]),
            service("empty", &["10.96.0.2"], "Cluster"),
            service("here", &["10.96.0.3"], "Local"),
            slice("here", "", "IPv4", &["10.0.1.1"]),
            ClusterEvent::NodeUpserted(node()),
            ClusterEvent::ServiceCidrUpserted(ServiceCidr {
                name: "kubernetes".into(),
                cidrs: ["fd00::/112", "10.96.0.0/16"]
                    .map(|cidr| cidr.parse().unwrap())
                    .into(),
            }),
            ClusterEvent::Diagnosed {
                object: object.into(),
                diagnostics: vec![Diagnostic {
                    object: object.into(),
                    field: "spec.sessionAffinity".to_owned(),
                    message: "is not served yet".to_owned(),
                }],
            },
        ],
    )
}

#[test]
fn the_json_has_the_documented_shape() {
    let json: Value = serde_json::from_str(&to_json(&small())).unwrap();
    let frontend = |address: &str| json!([{"kind": "ClusterIP", "address": address, "port": 80}]);
    let mut expected = json!({
        "node": {
            "name": "node-a", "zone": "zone-a", "known": true, "podCIDRs": ["10.0.0.0/24"],
            "addresses": ["192.0.2.1", "2001:db8::1"], "eligible": true,
            "nodePortAddresses": ["127.0.0.1", "192.0.2.1", "::1", "2001:db8::1"],
            "hostAddresses": ["192.0.2.1", "2001:db8::1"], "detectLocal": null,
            "masqueradeAll": false,
        },
        "services": [
            {
                "namespace": "shop", "name": "empty", "port": "", "protocol": "TCP",
                "family": "IPv4", "frontends": frontend("10.96.0.2"),
                "clusterEndpoints": [], "localEndpoints": null, "hasAnyEndpoints": false,
            },
            {
                "namespace": "shop", "name": "here", "port": "", "protocol": "TCP",
                "family": "IPv4", "frontends": frontend("10.96.0.3"),
                "clusterEndpoints": null, "localEndpoints": [], "hasAnyEndpoints": true,
            },
            {
                "namespace": "shop", "name": "web", "port": "http", "protocol": "TCP",
                "family": "IPv4", "frontends": frontend("10.96.0.1"),
                "clusterEndpoints":
                    ["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080", "10.0.0.4:8080"],
                "localEndpoints": null, "hasAnyEndpoints": true,
            },
            {
                "namespace": "shop", "name": "web", "port": "http", "protocol": "TCP",
                "family": "IPv6", "frontends": frontend("fd00::1"),
                "clusterEndpoints": ["[fd00::a]:8080"],
                "localEndpoints": null, "hasAnyEndpoints": true,
            },
        ],
        "healthChecks": [],
        "serviceCIDRs": ["10.96.0.0/16", "fd00::/112"],
        "diagnostics": [{
            "object": "Service shop/web", "field": "spec.sessionAffinity",
            "message": "is not served yet",
        }],
    });
    for (index, service) in (0..).zip(expected["services"].as_array_mut().unwrap()) {
        service["internalPolicy"] = json!(if index == 1 { "Local" } else { "Cluster" });
        service["externalPolicy"] = json!("Cluster");
        service["affinitySeconds"] = Value::Null;
        service["sourceRanges"] = Value::Null;
    }
    assert_eq!(json, expected);
    let json: Value = serde_json::from_str(&to_json(&compute("node-a", []))).unwrap();
    let unknown = json!({
        "name": "node-a", "zone": null, "known": false, "podCIDRs": [], "addresses": [],
        "eligible": false, "nodePortAddresses": ["127.0.0.1", "::1"], "hostAddresses": [],
        "detectLocal": null, "masqueradeAll": false,
    });
    assert_eq!(json["node"], unknown);
}

/// A Service with everything that is for clients outside the cluster.
fn balanced() -> NodeState {
    let object = json!({
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {
            "type": "LoadBalancer",
            "clusterIPs": ["10.96.0.1"],
            "internalTrafficPolicy": "Local",
            "externalTrafficPolicy": "Local",
            "externalIPs": ["198.51.100.9"],
            "healthCheckNodePort": 31999,
            "loadBalancerSourceRanges": ["192.0.2.0/24", "203.0.113.0/24"],
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}},
            "ports": [{"port": 80, "nodePort": 30080}],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}]}},
    });
    let object = serde_json::from_value(object).unwrap();
    let converted = convert::service(&object, &mut Names::default());
    compute(
        "node-b",
        [
            ClusterEvent::ServiceUpserted(converted.value.unwrap()),
            slice("web", "", "IPv4", &["10.0.0.1"]),
            ClusterEvent::NodeUpserted(Node {
                name: "node-b".into(),
                ..node()
            }),
        ],
    )
}

#[test]
fn what_is_for_clients_outside_the_cluster_is_told() {
    let json: Value = serde_json::from_str(&to_json(&balanced())).unwrap();
    let service = &json["services"][0];
    assert_eq!(
        service["frontends"],
        json!([
            {"kind": "ClusterIP", "address": "10.96.0.1", "port": 80},
            {"kind": "LoadBalancerIP", "address": "198.51.100.7", "port": 80},
            {"kind": "ExternalIP", "address": "198.51.100.9", "port": 80},
            {"kind": "NodePort", "address": null, "port": 30080},
        ])
    );
    assert_eq!(service["internalPolicy"], "Local");
    assert_eq!(service["externalPolicy"], "Local");
    assert_eq!(service["affinitySeconds"], 600);
    let ranges = json!({"ranges": ["192.0.2.0/24", "203.0.113.0/24"], "ownAddress": true});
    assert_eq!(service["sourceRanges"], ranges);
    assert_eq!(
        json["healthChecks"],
        json!([{
            "namespace": "shop", "name": "web", "family": "IPv4", "port": 31999,
            "localEndpoints": 1,
        }])
    );
    let text = to_text(&balanced());
    for part in [
        "NodePorts on 127.0.0.1, 192.0.2.1, ::1, 2001:db8::1\n",
        "10.96.0.1:80,198.51.100.7:80,198.51.100.9:80,*:30080",
        "internal Local; external Local; affinity 600s; \
         from 192.0.2.0/24, 203.0.113.0/24 and itself\n",
        "\nHealth checks:\n\n\
         NAMESPACE  NAME  FAMILY  PORT   LOCAL ENDPOINTS\n\
         shop       web   IPv4    31999  1\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn how_sources_are_told_apart_is_told() {
    let node_cidrs = ["10.0.0.0/24"];
    for (detector, json, text) in [
        (
            Detector::ClusterCidr(vec!["10.244.0.0/16".parse().unwrap()]),
            json!({"mode": "ClusterCIDR", "cidrs": ["10.244.0.0/16"], "interface": null}),
            "Local traffic comes from 10.244.0.0/16\n",
        ),
        (
            Detector::NodeCidr,
            json!({"mode": "NodeCIDR", "cidrs": node_cidrs, "interface": null}),
            "Local traffic comes from this node's pod ranges\n",
        ),
        (
            Detector::BridgeInterface("cbr0".into()),
            json!({"mode": "BridgeInterface", "cidrs": [], "interface": "cbr0"}),
            "Local traffic comes in by cbr0\n",
        ),
        (
            Detector::InterfaceNamePrefix("veth".into()),
            json!({"mode": "InterfaceNamePrefix", "cidrs": [], "interface": "veth"}),
            "Local traffic comes in by veth*\n",
        ),
    ] {
        let settings = Settings {
            traffic: Traffic {
                detector,
                masquerade_all: true,
            },
            ..Settings::from("node-a")
        };
        let host = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        let events = [
            ClusterEvent::NodeUpserted(node()),
            ClusterEvent::HostAddresses(host.into()),
        ];
        let state = compute(settings, events);
        let told: Value = serde_json::from_str(&to_json(&state)).unwrap();
        assert_eq!(told["node"]["detectLocal"], json);
        assert_eq!(told["node"]["masqueradeAll"], true);
        assert_eq!(told["node"]["hostAddresses"], json!(host));
        let told = to_text(&state);
        for part in [
            text,
            "Interfaces have 192.0.2.1, 192.0.2.2\n",
            "Masquerades all connections to ClusterIPs\n",
        ] {
            assert!(told.contains(part), "{part:?} is not in\n{told}");
        }
    }
}

const LACKS: &[Capability] = &[Capability::ExternalTraffic, Capability::SourceRanges];

fn facts(choice: Choice) -> AgentFacts {
    AgentFacts {
        suffices: false,
        ..AgentFacts::in_order(choice)
    }
}

#[test]
fn what_a_backend_cannot_do_is_told_of_each_service_port_that_needs_it() {
    let agent = facts(choice::fixtures::lacking(LACKS));
    let missing = |state: &NodeState| {
        let json: Value = serde_json::from_str(&agent_to_json(state, &agent)).unwrap();
        assert_eq!(json["agent"]["backend"], "ebpf");
        assert_eq!(json["agent"]["suffices"], false);
        assert_eq!(json["agent"]["lacks"][1]["capability"], "source-ranges");
        let services = json["services"].as_array().unwrap().iter();
        services
            .map(|service| service["missing"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(missing(&small()), vec![json!([]); 4]);
    let both = json!(["external-traffic", "source-ranges"]);
    assert_eq!(missing(&balanced()), [both]);
    // Without an agent there is no backend to lack anything.
    assert!(!to_json(&balanced()).contains("missing"));

    assert!(!agent_to_text(&small(), &agent).contains("MISSING"));
    let text = agent_to_text(&balanced(), &agent);
    let expected = "
Not served in full, because of what ebpf cannot do:

SERVICE PORT       MISSING
shop/web/TCP/IPv4  external-traffic, source-ranges

external-traffic: NodePorts, external and load-balancer IPs answer processes of this node only";
    assert!(text.contains(expected), "{text}");
    let last = "backend ebpf, objects from manifests, revision 3 after 70 events\n";
    assert!(text.ends_with(last), "{text}");
    let text = agent_to_text(
        &small(),
        &facts(choice::fixtures::lacking_alone(LACKS, "too old")),
    );
    let why = "70 events\nmode auto: the only one\n  not nftables: too old\n";
    assert!(text.ends_with(why), "{text}");
}

#[test]
fn the_text_is_aligned_and_says_what_becomes_of_connections() {
    let expected = "\
Node node-a, zone zone-a
Addresses 192.0.2.1, 2001:db8::1
Pods from 10.0.0.0/24
ClusterIPs from 10.96.0.0/16, fd00::/112

NAMESPACE  NAME   PORT  PROTOCOL  FAMILY  FRONTENDS     ENDPOINTS                                           LOCAL
shop       empty  -     TCP       IPv4    10.96.0.2:80  <none> (refused)                                    -
shop       here   -     TCP       IPv4    10.96.0.3:80  -                                                   <none here> (unreachable)
shop       web    http  TCP       IPv4    10.96.0.1:80  10.0.0.1:8080,10.0.0.2:8080,10.0.0.3:8080 + 1 more  -
shop       web    http  TCP       IPv6    [fd00::1]:80  [fd00::a]:8080                                      -

Diagnostics:

OBJECT            FIELD                 MESSAGE
Service shop/web  spec.sessionAffinity  is not served yet
";
    assert_eq!(to_text(&small()), expected);
}

#[test]
fn without_services_the_text_says_so() {
    assert_eq!(
        to_text(&compute("node-a", [])),
        "Node node-a, zone unknown\n\nNo Services.\n"
    );
    let node = Node {
        eligible: false,
        ..node()
    };
    let text = to_text(&compute("node-a", [ClusterEvent::NodeUpserted(node)]));
    assert!(
        text.starts_with("Node node-a, zone zone-a, about to be removed: not eligible"),
        "{text}"
    );
}

#[test]
fn the_local_column_appears_only_where_it_is_used() {
    let state = compute("node-a", [service("web", &["10.96.0.1"], "Cluster")]);
    let text = to_text(&state);
    assert!(
        text.contains("ENDPOINTS") && !text.contains("LOCAL"),
        "{text}"
    );
}

#[test]
fn a_long_table_is_summed_up() {
    let names: Vec<_> = (10..30).map(|number| format!("service-{number}")).collect();
    let text = |count: usize| {
        let mut events = Vec::new();
        for (index, name) in names.iter().take(count).enumerate() {
            let policy = if index == 1 { "Local" } else { "Cluster" };
            let address = format!("10.96.0.{index}");
            events.push(service(name, &[&address], policy));
            if index > 0 {
                events.push(slice(name, "", "IPv4", &["10.0.0.1", "10.0.0.2"]));
            }
        }
        to_text(&compute("node-a", events))
    };
    let summary = "20 Service ports, 36 endpoints; refused: 1, unreachable: 1\n";
    assert!(text(20).ends_with(summary), "{}", text(20));
    assert!(!text(19).contains("Service ports"));
}

/// Everything that this node does for a cluster as a real API server described it.
#[test]
fn a_real_cluster_is_reported_as_expected() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    let events = manifests::load_once(vec![data.join("cluster-mixed.yaml")]).unwrap();
    let text = to_text(&compute("node-a", events));
    let expected = std::fs::read_to_string(data.join("cluster-mixed.node-a.txt")).unwrap();
    assert_eq!(text, expected, "\n{text}");
}
