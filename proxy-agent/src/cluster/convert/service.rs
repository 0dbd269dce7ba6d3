//! Services.

use std::{collections::BTreeSet, net::IpAddr};

use k8s_openapi::api::core::v1 as api;
use proxy_model::{IpFamily, Protocol, Service, ServicePort, TrafficPolicy};

use super::{
    Converted, LABEL_HEADLESS, LABEL_PROXY_NAME, Report, label, non_empty, object_name,
    parse_address, parse_port, parse_protocol,
};

/// Converts a Service. Ignored are those without name, headless ones, `ExternalName`, and those
/// that another proxy serves.
pub fn service(object: &api::Service) -> Converted<Service> {
    let metadata = &object.metadata;
    let (Some(name), Some(spec)) = (object_name(metadata), object.spec.as_ref()) else {
        return Converted::ignored();
    };
    if label(metadata, LABEL_PROXY_NAME).is_some()
        || label(metadata, LABEL_HEADLESS).is_some()
        || spec.type_.as_deref() == Some("ExternalName")
        || is_headless(spec)
    {
        return Converted::ignored();
    }
    let mut report = Report::about("Service", &name);
    let value = Service {
        cluster_ips: cluster_ips(spec, &mut report),
        ports: ports(spec.ports.as_deref().unwrap_or_default(), &mut report),
        internal_policy: internal_policy(spec, &mut report),
        name,
    };
    report_not_served(object, spec, &mut report);
    Converted {
        value: Some(value),
        diagnostics: report.diagnostics,
    }
}

/// `None`, or no ClusterIP at all.
fn is_headless(spec: &api::ServiceSpec) -> bool {
    let first = spec
        .cluster_ips
        .as_ref()
        .and_then(|addresses| addresses.first());
    match non_empty(spec.cluster_ip.as_deref()).or(non_empty(first.map(String::as_str))) {
        None => true,
        Some(address) => address == "None",
    }
}

fn cluster_ips(spec: &api::ServiceSpec, report: &mut Report) -> Vec<IpAddr> {
    // `clusterIPs[0]` is `clusterIP` wherever both are set; old or hand-written objects may have
    // the latter only.
    let written: Vec<(String, &str)> = match spec.cluster_ips.as_deref() {
        None | Some([]) => spec
            .cluster_ip
            .iter()
            .map(|address| ("spec.clusterIP".to_owned(), address.as_str()))
            .collect(),
        Some(addresses) => addresses
            .iter()
            .enumerate()
            .map(|(index, address)| (format!("spec.clusterIPs[{index}]"), address.as_str()))
            .collect(),
    };
    let mut addresses: Vec<IpAddr> = Vec::new();
    for (field, text) in written {
        match parse_address(text) {
            Err(message) => report.add(field, message),
            Ok(address) => {
                let family = IpFamily::of(address);
                if addresses
                    .iter()
                    .any(|&earlier| IpFamily::of(earlier) == family)
                {
                    let message = format!("{address} is a second {family} address: it is left out");
                    report.add(field, message);
                } else {
                    addresses.push(address);
                }
            }
        }
    }
    addresses
}

fn ports(objects: &[api::ServicePort], report: &mut Report) -> Vec<ServicePort> {
    let mut seen = BTreeSet::new();
    let mut ports = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        let name = object.name.as_deref().unwrap_or_default();
        let protocol = match parse_protocol(object.protocol.as_deref()) {
            Ok(Protocol::Sctp) => {
                let message = "SCTP is not served yet: this port is left out";
                report.add(format!("spec.ports[{index}].protocol"), message);
                continue;
            }
            Ok(protocol) => protocol,
            Err(message) => {
                report.add(format!("spec.ports[{index}].protocol"), message);
                continue;
            }
        };
        let port = match parse_port(object.port) {
            Ok(port) => port,
            Err(message) => {
                report.add(format!("spec.ports[{index}].port"), message);
                continue;
            }
        };
        if !seen.insert((name, protocol)) {
            let message = format!(
                "{name:?} is the name of an earlier {protocol} port too: this port is left out"
            );
            report.add(format!("spec.ports[{index}].name"), message);
            continue;
        }
        if let Some(node_port) = object.node_port.filter(|&port| port != 0) {
            let message = format!("node ports are not served yet: nothing answers on {node_port}");
            report.add(format!("spec.ports[{index}].nodePort"), message);
        }
        ports.push(ServicePort {
            name: name.into(),
            protocol,
            port,
        });
    }
    ports
}

fn internal_policy(spec: &api::ServiceSpec, report: &mut Report) -> TrafficPolicy {
    match non_empty(spec.internal_traffic_policy.as_deref()) {
        None | Some("Cluster") => TrafficPolicy::Cluster,
        Some("Local") => TrafficPolicy::Local,
        Some(other) => {
            let message = format!("{other:?} is neither Cluster nor Local: Cluster is used");
            report.add("spec.internalTrafficPolicy", message);
            TrafficPolicy::Cluster
        }
    }
}

/// What is valid, and what a user must know does not happen.
fn report_not_served(object: &api::Service, spec: &api::ServiceSpec, report: &mut Report) {
    match non_empty(spec.session_affinity.as_deref()) {
        None | Some("None") => {}
        Some("ClientIP") => report.add(
            "spec.sessionAffinity",
            "session affinity is not served yet: each connection goes to a random endpoint",
        ),
        Some(other) => {
            let message = format!("{other:?} is neither None nor ClientIP: None is used");
            report.add("spec.sessionAffinity", message);
        }
    }
    if let Some(distribution) = non_empty(spec.traffic_distribution.as_deref()) {
        let message = format!(
            "{distribution} is not followed yet: endpoints of every zone and node are used"
        );
        report.add("spec.trafficDistribution", message);
    }
    for (index, address) in spec.external_ips.iter().flatten().enumerate() {
        let message = format!("external IPs are not served yet: nothing answers on {address}");
        report.add(format!("spec.externalIPs[{index}]"), message);
    }
    if let Some(port) = spec.health_check_node_port.filter(|&port| port != 0) {
        let message = format!("health checks are not served yet: nothing answers on port {port}");
        report.add("spec.healthCheckNodePort", message);
    }
    let ingress = object
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref())
        .and_then(|balancer| balancer.ingress.as_deref())
        .unwrap_or_default();
    for (index, entry) in ingress.iter().enumerate() {
        // With any other mode than VIP the load balancer delivers to nodes or pods (KEP-1860):
        // such an address, or a host name, is none that a proxy serves.
        let is_vip = non_empty(entry.ip_mode.as_deref()).is_none_or(|mode| mode == "VIP");
        if let Some(address) = non_empty(entry.ip.as_deref()).filter(|_| is_vip) {
            let message = format!(
                "load-balancer IPs are not served yet: connections to {address} leave this node"
            );
            report.add(format!("status.loadBalancer.ingress[{index}].ip"), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn convert(object: Value) -> Converted<Service> {
        service(&serde_json::from_value(object).unwrap())
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
}
