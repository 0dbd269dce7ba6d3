//! Services as the API has them, to model values and diagnostics.

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
        (
            "no ClusterIP",
            web(&json!({"clusterIP": null, "clusterIPs": null})),
        ),
        (
            "empty ClusterIP",
            web(&json!({"clusterIP": "", "clusterIPs": []})),
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
            "\"http\" is the name of an earlier TCP port",
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
fn what_is_valid_but_not_served_is_reported() {
    let case = |spec, field, message, remain| Case {
        spec,
        field,
        message,
        remain,
    };
    check(vec![
        case(
            json!({"ports": [{"port": 80}, {"name": "a", "port": 81, "nodePort": 30080}]}),
            "spec.ports[1].nodePort",
            "nothing answers on 30080",
            (1, 2),
        ),
        case(
            json!({"ports": [{"port": 80}, {"name": "s", "port": 7, "protocol": "SCTP", "nodePort": 30007}]}),
            "spec.ports[1].protocol",
            "SCTP is not served yet",
            (1, 1),
        ),
        case(
            json!({"sessionAffinity": "ClientIP"}),
            "spec.sessionAffinity",
            "random endpoint",
            (1, 1),
        ),
        case(
            json!({"trafficDistribution": "PreferSameZone"}),
            "spec.trafficDistribution",
            "PreferSameZone is not followed yet",
            (1, 1),
        ),
        case(
            json!({"externalIPs": ["198.51.100.9"]}),
            "spec.externalIPs[0]",
            "nothing answers on 198.51.100.9",
            (1, 1),
        ),
        case(
            json!({"healthCheckNodePort": 31999}),
            "spec.healthCheckNodePort",
            "nothing answers on port 31999",
            (1, 1),
        ),
    ]);
}

#[test]
fn only_load_balancer_ips_that_a_proxy_must_serve_are_reported() {
    let mut object = web(&json!({"type": "LoadBalancer"}));
    object["status"] = json!({"loadBalancer": {"ingress": [
        {"ip": "198.51.100.1", "ipMode": "Proxy"},
        {"hostname": "lb.example.org"},
        {"ip": "198.51.100.2", "ipMode": "VIP"},
        {"ip": "198.51.100.3"},
    ]}});
    let fields: Vec<_> = convert(object)
        .diagnostics
        .into_iter()
        .map(|diagnostic| diagnostic.field)
        .collect();
    assert_eq!(
        fields,
        [
            "status.loadBalancer.ingress[2].ip",
            "status.loadBalancer.ingress[3].ip"
        ]
    );
}
