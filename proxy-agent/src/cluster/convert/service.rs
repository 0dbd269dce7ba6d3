//! Services.

mod access;

use std::{
    collections::BTreeSet,
    net::IpAddr,
    num::{NonZeroU16, NonZeroU32},
};

use proxy_model::{IpFamily, Service, ServicePort, TrafficPolicy};

use super::{
    Converted, Report, is_not_ours, non_empty, object_name, parse_ordinary_address, parse_port,
    parse_protocol,
};
use crate::cluster::{names::Names, object};

/// Converts a Service. Ignored are those without name, headless ones, `ExternalName`, and those
/// that another proxy serves. One to which no API server gave a ClusterIP is told.
pub fn service(object: &object::Service, names: &mut Names) -> Converted<Service> {
    let metadata = &object.metadata;
    let (Some(name), Some(spec)) = (object_name(metadata, names), object.spec.as_ref()) else {
        return Converted::ignored();
    };
    if is_not_ours(metadata) || spec.r#type.as_deref() == Some("ExternalName") {
        return Converted::ignored();
    }
    let mut report = Report::about("Service", &name);
    match first_cluster_ip(spec) {
        Some("None") => return Converted::ignored(),
        Some(_) => {}
        None => {
            let message = "is missing, so that the Service is not served: the API server gives it \
                           one, and `kubectl get -o yaml` shows it";
            report.add("spec.clusterIP", message);
            return Converted::refused(report);
        }
    }
    let cluster_ips = cluster_ips(spec, &mut report);
    let value = Service {
        ports: ports(&spec.ports, names, &mut report),
        internal_policy: policy(
            spec.internal_traffic_policy.as_deref(),
            "spec.internalTrafficPolicy",
            &mut report,
        ),
        affinity: affinity(spec, &mut report),
        external: access::external(object, spec, &cluster_ips, &mut report),
        cluster_ips,
        name,
    };
    Converted {
        value: Some(value),
        diagnostics: report.diagnostics,
    }
}

/// As written; `None` for a headless Service.
fn first_cluster_ip(spec: &object::ServiceSpec) -> Option<&str> {
    let first = spec.cluster_ips.first();
    non_empty(spec.cluster_ip.as_deref()).or(non_empty(first.map(String::as_str)))
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
        match parse_ordinary_address(text) {
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
                "{name:?} is already the name of an earlier {protocol} port: this port is left out"
            );
            report.add(format!("spec.ports[{index}].name"), message);
            continue;
        }
        let node_port = match node_port(object.node_port) {
            Ok(node_port) => node_port,
            Err(message) => {
                report.add(format!("spec.ports[{index}].nodePort"), message);
                None
            }
        };
        ports.push(ServicePort {
            name: names.share(name),
            protocol,
            port,
            node_port,
        });
    }
    ports
}

/// A port number that may be absent, which 0 means too. Whether it is in the range that the API
/// server gives NodePorts from cannot be seen from here: that is a flag of the API server. The
/// error completes the sentence "field: …".
fn node_port(number: Option<i32>) -> Result<Option<NonZeroU16>, String> {
    let number = number.unwrap_or(0);
    match u16::try_from(number) {
        Ok(number) => Ok(NonZeroU16::new(number)),
        Err(_) => Err(format!(
            "{number} is not a port number from 1 to 65535: it is left out"
        )),
    }
}

fn policy(written: Option<&str>, field: &str, report: &mut Report) -> TrafficPolicy {
    match non_empty(written) {
        None | Some("Cluster") => TrafficPolicy::Cluster,
        Some("Local") => TrafficPolicy::Local,
        Some(other) => {
            let message = format!("{other:?} is neither Cluster nor Local: Cluster is used");
            report.add(field, message);
            TrafficPolicy::Cluster
        }
    }
}

/// The API server's default for how long a client keeps its endpoint: three hours.
const AFFINITY_SECONDS: u32 = 10_800;
/// The longest that the API server accepts: a day.
const LONGEST_AFFINITY_SECONDS: u32 = 86_400;

fn affinity(spec: &object::ServiceSpec, report: &mut Report) -> Option<NonZeroU32> {
    match non_empty(spec.session_affinity.as_deref()) {
        None | Some("None") => return None,
        Some("ClientIP") => {}
        Some(other) => {
            let message = format!("{other:?} is neither None nor ClientIP: None is used");
            report.add("spec.sessionAffinity", message);
            return None;
        }
    }
    let written = spec.session_affinity_config.client_ip.timeout_seconds;
    let seconds = written.map_or(Some(AFFINITY_SECONDS), |seconds| {
        let seconds = u32::try_from(seconds).ok()?;
        (1..=LONGEST_AFFINITY_SECONDS)
            .contains(&seconds)
            .then_some(seconds)
    });
    let seconds = seconds.unwrap_or_else(|| {
        let message = format!(
            "{} is not a number of seconds from 1 to {LONGEST_AFFINITY_SECONDS}: \
             {AFFINITY_SECONDS} is used",
            written.unwrap_or_default()
        );
        report.add(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            message,
        );
        AFFINITY_SECONDS
    });
    NonZeroU32::new(seconds)
}

#[cfg(test)]
mod tests;
