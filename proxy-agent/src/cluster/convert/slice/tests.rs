//! EndpointSlices as the API has them, to model values and diagnostics.

use serde_json::{Value, json};

use super::*;

fn convert(object: &Value) -> Converted<EndpointSlice> {
    slice(
        &serde_json::from_value(object.clone()).unwrap(),
        &mut Names::default(),
    )
}

/// A valid slice with one port and one endpoint, with `change` merged into it.
fn web(change: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": "shop",
            "name": "web-1",
            "labels": {"kubernetes.io/service-name": "web"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["10.0.0.1"]}],
    });
    for (field, value) in change.as_object().unwrap() {
        object[field] = value.clone();
    }
    object
}

#[test]
fn a_valid_slice_is_taken_over() {
    let converted = convert(&web(&json!({"endpoints": [
        {"addresses": ["10.0.0.1", "10.0.0.2"], "nodeName": "node-a"},
        {"addresses": ["10.0.0.3"], "conditions": {"ready": false, "serving": true, "terminating": true}},
        {"addresses": ["10.0.0.4"], "conditions": {"ready": null}, "nodeName": ""},
    ]})));
    let endpoint = |address: &str, ready, terminating, node: Option<&str>| SliceEndpoint {
        address: address.parse().unwrap(),
        conditions: Conditions {
            ready,
            serving: true,
            terminating,
        },
        node: node.map(Into::into),
        hints: None,
    };
    let expected = EndpointSlice {
        name: ServiceName::new("shop", "web-1"),
        service: ServiceName::new("shop", "web"),
        family: IpFamily::V4,
        ports: vec![SlicePort {
            name: "http".into(),
            protocol: proxy_model::Protocol::Tcp,
            port: 8080,
        }],
        endpoints: vec![
            endpoint("10.0.0.1", true, false, Some("node-a")),
            endpoint("10.0.0.3", false, true, None),
            endpoint("10.0.0.4", true, false, None),
        ],
    };
    assert_eq!(
        converted,
        Converted {
            value: Some(expected),
            diagnostics: vec![]
        }
    );
}

#[test]
fn some_slices_are_ignored() {
    let metadata = |labels: Value| json!({"metadata": {"name": "web-1", "labels": labels}});
    for (name, change) in [
        ("no labels", metadata(json!(null))),
        (
            "empty service",
            metadata(json!({"kubernetes.io/service-name": ""})),
        ),
        (
            "headless",
            metadata(json!({"kubernetes.io/service-name": "web",
                            "service.kubernetes.io/headless": ""})),
        ),
        (
            "of another proxy",
            metadata(json!({"kubernetes.io/service-name": "web",
                            "service.kubernetes.io/service-proxy-name": "other"})),
        ),
        (
            "domain names",
            json!({"addressType": "FQDN", "endpoints": [{"addresses": ["example.org"]}]}),
        ),
        (
            "no name",
            json!({"metadata": {"labels": {"kubernetes.io/service-name": "web"}}}),
        ),
    ] {
        assert_eq!(convert(&web(&change)), Converted::ignored(), "case: {name}");
    }
}

#[test]
fn what_makes_no_sense_is_reported_and_left_out() {
    struct Case {
        change: Value,
        field: &'static str,
        message: &'static str,
        /// Ports and endpoints that remain.
        remain: (usize, usize),
    }
    let ports = |ports: Value| json!({ "ports": ports });
    let endpoints = |endpoints: Value| json!({ "endpoints": endpoints });
    let ok = json!({"name": "http", "port": 80});
    let up = json!({"addresses": ["10.0.0.1"]});
    for case in [
        Case {
            change: ports(json!([ok, {"name": "x", "port": 0}])),
            field: "ports[1].port",
            message: "0 is not a port number",
            remain: (1, 1),
        },
        Case {
            change: ports(json!([{"name": "x", "port": 65536}, ok])),
            field: "ports[0].port",
            message: "65536 is not a port number",
            remain: (1, 1),
        },
        Case {
            change: ports(json!([{"name": "x"}])),
            field: "ports[0].port",
            message: "every port",
            remain: (0, 1),
        },
        Case {
            change: ports(json!([{"name": "x", "port": 1, "protocol": "ICMP"}])),
            field: "ports[0].protocol",
            message: "\"ICMP\" is none of",
            remain: (0, 1),
        },
        Case {
            change: ports(json!([ok, {"name": "http", "port": 81}])),
            field: "ports[1].name",
            message: "\"http\" is already the name of an earlier TCP port",
            remain: (1, 1),
        },
        Case {
            change: endpoints(json!([up, {"addresses": []}])),
            field: "endpoints[1].addresses",
            message: "is empty",
            remain: (1, 1),
        },
        Case {
            change: endpoints(json!([{"addresses": ["10.0.0"]}, up])),
            field: "endpoints[0].addresses[0]",
            message: "\"10.0.0\" is not an IP address",
            remain: (1, 1),
        },
        Case {
            change: endpoints(json!([{"addresses": ["fd00::1"]}, up])),
            field: "endpoints[0].addresses[0]",
            message: "fd00::1 is not an IPv4 address",
            remain: (1, 1),
        },
        Case {
            change: endpoints(json!([up, {"addresses": ["127.0.0.1"]}])),
            field: "endpoints[1].addresses[0]",
            message: "127.0.0.1 is an address that no Service and no endpoint may have",
            remain: (1, 1),
        },
    ] {
        let Converted { value, diagnostics } = convert(&web(&case.change));
        let value = value.unwrap();
        let [diagnostic] = diagnostics.as_slice() else {
            panic!("{}: {diagnostics:?}", case.change)
        };
        assert_eq!(&*diagnostic.object, "EndpointSlice shop/web-1");
        assert_eq!(diagnostic.field, case.field, "{}", case.change);
        assert!(
            diagnostic.message.contains(case.message),
            "{}",
            diagnostic.message
        );
        assert_eq!(
            (value.ports.len(), value.endpoints.len()),
            case.remain,
            "{}",
            case.change
        );
    }
}

#[test]
fn an_unknown_address_type_leaves_the_slice_out() {
    let converted = convert(&web(&json!({"addressType": "IPX"})));
    assert_eq!(converted.value, None);
    assert_eq!(converted.diagnostics[0].field, "addressType");
}

#[test]
fn a_port_without_name_or_protocol_is_the_unnamed_tcp_port() {
    for port in [
        json!({"port": 80}),
        json!({"name": "", "port": 80, "protocol": "TCP"}),
    ] {
        let value = convert(&web(&json!({"ports": [port]}))).value.unwrap();
        let expected = SlicePort {
            name: "".into(),
            protocol: proxy_model::Protocol::Tcp,
            port: 80,
        };
        assert_eq!(value.ports, [expected]);
    }
}

#[test]
fn null_lists_are_empty() {
    let converted = convert(&web(&json!({"ports": null, "endpoints": null})));
    let value = converted.value.unwrap();
    assert_eq!((value.ports.len(), value.endpoints.len()), (0, 0));
    assert_eq!(converted.diagnostics, []);
}

#[test]
fn hints_are_taken_over_and_shared() {
    let hints = json!({"forZones": [{"name": "zone-a"}], "forNodes": [{"name": "node-a"}]});
    let converted = convert(&web(&json!({"endpoints": [
        {"addresses": ["10.0.0.1"], "hints": hints},
        {"addresses": ["10.0.0.2"], "hints": hints},
        {"addresses": ["10.0.0.3"], "hints": {"forZones": []}},
        {"addresses": ["10.0.0.4"]},
    ]})));
    assert_eq!(converted.diagnostics, []);
    let endpoints = converted.value.unwrap().endpoints;
    let first = endpoints[0].hints.as_ref().unwrap();
    let expected = Hints {
        zones: vec!["zone-a".into()],
        nodes: vec!["node-a".into()],
    };
    assert_eq!(**first, expected);
    assert!(Arc::ptr_eq(first, endpoints[1].hints.as_ref().unwrap()));
    assert_eq!((&endpoints[2].hints, &endpoints[3].hints), (&None, &None));
}
