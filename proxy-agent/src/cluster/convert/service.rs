//! Services.

use std::{collections::BTreeSet, net::IpAddr};

use proxy_model::{IpFamily, Protocol, Service, ServicePort, TrafficPolicy};

use super::{
    Converted, Report, is_not_ours, non_empty, object_name, parse_address, parse_port,
    parse_protocol,
};
use crate::cluster::{names::Names, object};

/// Converts a Service. Ignored are those without name, headless ones, `ExternalName`, and those
/// that another proxy serves.
pub fn service(object: &object::Service, names: &mut Names) -> Converted<Service> {
    let metadata = &object.metadata;
    let (Some(name), Some(spec)) = (object_name(metadata, names), object.spec.as_ref()) else {
        return Converted::ignored();
    };
    if is_not_ours(metadata) || spec.r#type.as_deref() == Some("ExternalName") || is_headless(spec)
    {
        return Converted::ignored();
    }
    let mut report = Report::about("Service", &name);
    let value = Service {
        cluster_ips: cluster_ips(spec, &mut report),
        ports: ports(&spec.ports, names, &mut report),
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
fn is_headless(spec: &object::ServiceSpec) -> bool {
    let first = spec.cluster_ips.first();
    match non_empty(spec.cluster_ip.as_deref()).or(non_empty(first.map(String::as_str))) {
        None => true,
        Some(address) => address == "None",
    }
}

fn cluster_ips(spec: &object::ServiceSpec, report: &mut Report) -> Vec<IpAddr> {
    // `clusterIPs[0]` is `clusterIP` wherever both are set; old or hand-written objects may have
    // the latter only.
    let written: Vec<(String, &str)> = match spec.cluster_ips.as_slice() {
        [] => spec
            .cluster_ip
            .iter()
            .map(|address| ("spec.clusterIP".to_owned(), address.as_str()))
            .collect(),
        addresses => addresses
            .iter()
            .enumerate()
            .map(|(index, address)| (format!("spec.clusterIPs[{index}]"), address.as_str()))
            .collect(),
    };
    let mut addresses: Vec<IpAddr> = Vec::with_capacity(written.len());
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

fn ports(
    objects: &[object::ServicePort],
    names: &mut Names,
    report: &mut Report,
) -> Vec<ServicePort> {
    let mut seen = BTreeSet::new();
    let mut ports = Vec::with_capacity(objects.len());
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
        let port = match parse_port(object.port.unwrap_or_default()) {
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
            name: names.share(name),
            protocol,
            port,
        });
    }
    ports
}

fn internal_policy(spec: &object::ServiceSpec, report: &mut Report) -> TrafficPolicy {
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
fn report_not_served(object: &object::Service, spec: &object::ServiceSpec, report: &mut Report) {
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
    for (index, address) in spec.external_ips.iter().enumerate() {
        let message = format!("external IPs are not served yet: nothing answers on {address}");
        report.add(format!("spec.externalIPs[{index}]"), message);
    }
    if let Some(port) = spec.health_check_node_port.filter(|&port| port != 0) {
        let message = format!("health checks are not served yet: nothing answers on port {port}");
        report.add("spec.healthCheckNodePort", message);
    }
    let ingress = &object.status.load_balancer.ingress;
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
mod tests;
