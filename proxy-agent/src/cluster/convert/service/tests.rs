//! Services as the API has them, to model values and diagnostics.

use proxy_model::{ExternalAccess, Protocol};
use serde_json::{Value, json};

use super::*;

fn convert(object: Value) -> Converted<Service> {
    service(
        &serde_json::from_value(object).unwrap(),
        &mut Names::default(),
    )
}

/// A Service with a ClusterIP and one port, with `spec` merged into its spec.
fn web(spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {
            "clusterIP": "10.96.0.1",
            "clusterIPs": ["10.96.0.1"],
            "ports": [{"name": "http", "port": 80}],
        },
    });
    for (field, value) in spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    object
}

fn port(name: &str, protocol: Protocol, port: u16) -> ServicePort {
    ServicePort {
        name: name.into(),
        protocol,
        port,
        node_port: None,
    }
}

#[test]
fn a_valid_service_is_taken_over() {
    let converted = convert(web(&json!({
        "clusterIPs": ["10.96.0.1", "fd00::1"],
        "ports": [
            {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": "dns"},
            {"name": "dns", "port": 53, "protocol": "TCP", "targetPort": 5353},
            {"port": 80, "nodePort": 0},
        ],
        "internalTrafficPolicy": "Local",
        "externalTrafficPolicy": "Cluster",
        "sessionAffinity": "None",
        "type": "ClusterIP",
    })));
    let expected = Service {
        name: proxy_model::ServiceName::new("shop", "web"),
        cluster_ips: vec!["10.96.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        ports: vec![
            port("dns", Protocol::Udp, 53),
            port("dns", Protocol::Tcp, 53),
            port("", Protocol::Tcp, 80),
        ],
        internal_policy: TrafficPolicy::Local,
        ..Service::default()
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
fn cluster_ip_alone_is_enough() {
    let value = convert(web(&json!({"clusterIPs": null}))).value.unwrap();
    assert_eq!(value.cluster_ips, ["10.96.0.1".parse::<IpAddr>().unwrap()]);
}

#[test]
fn some_services_are_ignored() {
    let labelled = |label: &str, value: &str| {
        let mut object = web(&json!({"sessionAffinity": "ClientIP"}));
        object["metadata"]["labels"] = json!({ label: value });
        object
    };
    for (name, object) in [
        (
            "headless",
            web(&json!({"clusterIP": "None", "clusterIPs": ["None"]})),
        ),
        (
            "headless, clusterIP alone",
            web(&json!({"clusterIP": "None", "clusterIPs": null})),
        ),
        ("ExternalName", web(&json!({"type": "ExternalName"}))),
        (
            "headless label",
            labelled("service.kubernetes.io/headless", ""),
        ),
        (
            "another proxy's",
            labelled("service.kubernetes.io/service-proxy-name", "other"),
        ),
        (
            "another proxy's, unnamed",
            labelled("service.kubernetes.io/service-proxy-name", ""),
        ),
        ("no spec", json!({"metadata": {"name": "web"}})),
        (
            "no name",
            json!({"metadata": {}, "spec": {"clusterIP": "10.96.0.1"}}),
        ),
    ] {
        assert_eq!(convert(object), Converted::ignored(), "case: {name}");
    }
}

#[test]
fn a_service_without_a_cluster_ip_is_told() {
    for spec in [
        json!({"clusterIP": null, "clusterIPs": null}),
        json!({"clusterIP": "", "clusterIPs": []}),
    ] {
        let converted = convert(web(&spec));
        assert_eq!(converted.value, None);
        let [diagnostic] = &converted.diagnostics[..] else {
            panic!("one mistake, not {:?}", converted.diagnostics);
        };
        assert_eq!(
            diagnostic.to_string(),
            "Service shop/web: spec.clusterIP: is missing, so that the Service is not served: the API \
             server gives it one, and `kubectl get -o yaml` shows it"
        );
    }
}

struct Case {
    spec: Value,
    field: &'static str,
    message: &'static str,
    /// ClusterIPs and ports that remain.
    remain: (usize, usize),
}

fn check(cases: Vec<Case>) {
    for case in cases {
        let Converted { value, diagnostics } = convert(web(&case.spec));
        let value = value.unwrap();
        let [diagnostic] = diagnostics.as_slice() else {
            panic!("{}: {diagnostics:?}", case.spec)
        };
        assert_eq!(&*diagnostic.object, "Service shop/web");
        assert_eq!(diagnostic.field, case.field, "{}", case.spec);
        assert!(
            diagnostic.message.contains(case.message),
            "{}",
            diagnostic.message
        );
        assert_eq!(
            (value.cluster_ips.len(), value.ports.len()),
            case.remain,
            "{}",
            case.spec
        );
    }
}

#[test]
fn what_makes_no_sense_is_reported_and_left_out() {
    let case = |spec, field, message, remain| Case {
        spec,
        field,
        message,
        remain,
    };
    let ports = |ports: Value| json!({ "ports": ports });
    let ok = json!({"name": "http", "port": 80});
    check(vec![
        case(
            json!({"clusterIPs": ["10.96.0.1", "fd00::x"]}),
            "spec.clusterIPs[1]",
            "\"fd00::x\" is not an IP address",
            (1, 1),
        ),
        case(
            json!({"clusterIP": "10.96", "clusterIPs": null}),
            "spec.clusterIP",
            "\"10.96\" is not an IP address",
            (0, 1),
        ),
        case(
            json!({"clusterIPs": ["10.96.0.1", "::1"]}),
            "spec.clusterIPs[1]",
            "::1 is an address that no Service and no endpoint may have",
            (1, 1),
        ),
        case(
            json!({"clusterIPs": ["10.96.0.1", "10.96.0.2"]}),
            "spec.clusterIPs[1]",
            "second IPv4 address",
            (1, 1),
        ),
        case(
            ports(json!([{"name": "x", "port": 0}, ok])),
            "spec.ports[0].port",
            "0 is not a port number",
            (1, 1),
        ),
        case(
            ports(json!([ok, {"name": "x", "port": 70000}])),
            "spec.ports[1].port",
            "70000 is not a port number",
            (1, 1),
        ),
        case(
            ports(json!([ok, {"name": "x", "port": 1, "protocol": "tcp"}])),
            "spec.ports[1].protocol",
            "\"tcp\" is none of",
            (1, 1),
        ),
        case(
            ports(json!([ok, {"name": "http", "port": 81}])),
            "spec.ports[1].name",
            "\"http\" is already the name of an earlier TCP port",
            (1, 1),
        ),
        case(
            json!({"internalTrafficPolicy": "Nearby"}),
            "spec.internalTrafficPolicy",
            "\"Nearby\" is neither",
            (1, 1),
        ),
        case(
            json!({"sessionAffinity": "Cookie"}),
            "spec.sessionAffinity",
            "\"Cookie\" is neither",
            (1, 1),
        ),
    ]);
}

#[test]
fn what_makes_no_sense_outside_the_cluster_is_reported_too() {
    let case = |spec, field, message| Case {
        spec,
        field,
        message,
        remain: (1, 1),
    };
    let external = |address: &str| json!({"externalIPs": [address]});
    let timeout = |seconds: i64| {
        json!({
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}},
        })
    };
    let seconds = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
    check(vec![
        case(
            json!({"ports": [{"port": 80, "nodePort": 70000}]}),
            "spec.ports[0].nodePort",
            "70000 is not a port number",
        ),
        case(
            json!({"externalTrafficPolicy": "Nearby"}),
            "spec.externalTrafficPolicy",
            "\"Nearby\" is neither",
        ),
        case(external("198.51.100"), "spec.externalIPs[0]", "no"),
        case(external("127.0.0.1"), "spec.externalIPs[0]", "loopback"),
        case(
            external("169.254.169.254"),
            "spec.externalIPs[0]",
            "link-local",
        ),
        case(external("224.0.0.1"), "spec.externalIPs[0]", "multicast"),
        case(
            external("fd00::1"),
            "spec.externalIPs[0]",
            "no IPv6 ClusterIP",
        ),
        case(
            timeout(0),
            seconds,
            "0 is not a number of seconds from 1 to 86400",
        ),
        case(timeout(86401), seconds, "10800 is used"),
        case(timeout(-1), seconds, "-1 is not"),
        case(
            json!({"loadBalancerSourceRanges": ["203.0.113.0"]}),
            "spec.loadBalancerSourceRanges[0]",
            "is not a CIDR",
        ),
        case(
            json!({
                "type": "LoadBalancer",
                "externalTrafficPolicy": "Local",
                "healthCheckNodePort": -1,
            }),
            "spec.healthCheckNodePort",
            "-1 is not a port number",
        ),
    ]);
}

#[test]
fn everything_for_clients_outside_is_taken_over() {
    let mut object = web(&json!({
        "type": "LoadBalancer",
        "ports": [{"name": "http", "port": 80, "nodePort": 30080, "protocol": "SCTP"}],
        "externalTrafficPolicy": "Local",
        "externalIPs": ["198.51.100.9"],
        "loadBalancerSourceRanges": [" 203.0.113.0/24 "],
        "sessionAffinity": "ClientIP",
        "healthCheckNodePort": 31999,
        "allocateLoadBalancerNodePorts": true,
        "trafficDistribution": "PreferSameZone",
    }));
    object["status"] = json!({"loadBalancer": {"ingress": [
        {"ip": "198.51.100.1", "ipMode": "Proxy"},
        {"hostname": "lb.example.org"},
        {"ip": "198.51.100.2", "ipMode": "VIP"},
        {"ip": "198.51.100.3"},
    ]}});
    let converted = convert(object);
    assert_eq!(converted.diagnostics, []);
    let addresses = |texts: &[&str]| -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    };
    let expected = Service {
        name: proxy_model::ServiceName::new("shop", "web"),
        cluster_ips: addresses(&["10.96.0.1"]),
        ports: vec![ServicePort {
            node_port: NonZeroU16::new(30080),
            ..port("http", Protocol::Sctp, 80)
        }],
        affinity: NonZeroU32::new(10_800),
        external: Some(Box::new(ExternalAccess {
            policy: TrafficPolicy::Local,
            ips: addresses(&["198.51.100.9"]),
            load_balancer_ips: addresses(&["198.51.100.2", "198.51.100.3"]),
            proxied_ips: addresses(&["198.51.100.1"]),
            source_ranges: vec!["203.0.113.0/24".parse().unwrap()],
            health_check_node_port: NonZeroU16::new(31999),
        })),
        ..Service::default()
    };
    assert_eq!(converted.value, Some(expected));
}

#[test]
fn a_health_check_port_is_for_load_balancers_with_policy_local() {
    for (kind, policy, expected) in [
        ("LoadBalancer", "Local", Some(31999)),
        ("LoadBalancer", "Cluster", None),
        ("NodePort", "Local", None),
    ] {
        let spec = json!({
            "type": kind,
            "externalTrafficPolicy": policy,
            "healthCheckNodePort": 31999,
        });
        let external = convert(web(&spec)).value.unwrap().external;
        let port = external.and_then(|external| external.health_check_node_port);
        let port = port.map(NonZeroU16::get);
        assert_eq!(port, expected, "{kind} {policy}");
    }
}

#[test]
fn a_range_that_cannot_be_read_lets_nobody_in() {
    // IPv4 written as IPv6 would be no range of IPv4, and let all of it in.
    for text in ["everyone", "::ffff:10.0.0.0/104"] {
        let converted = convert(web(&json!({"loadBalancerSourceRanges": [text]})));
        assert_eq!(converted.diagnostics.len(), 1, "{text}");
        let ranges = converted.value.unwrap().external.unwrap().source_ranges;
        let texts: Vec<_> = ranges.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["0.0.0.0/32", "::/128"], "{text}");
    }
}
