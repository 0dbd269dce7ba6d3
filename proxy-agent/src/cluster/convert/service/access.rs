//! How a Service is reached from outside the cluster, and by whom.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    num::NonZeroU16,
};

use proxy_model::{ExternalAccess, IpFamily, IpNet, TrafficPolicy};

use super::{
    super::{Report, non_empty, parse_address, parse_ordinary_address},
    node_port, policy,
};
use crate::cluster::object;

/// All of it; `None` if there is nothing to say.
pub(super) fn external(
    object: &object::Service,
    spec: &object::ServiceSpec,
    cluster_ips: &[IpAddr],
    report: &mut Report,
) -> Option<Box<ExternalAccess>> {
    let policy = policy(
        spec.external_traffic_policy.as_deref(),
        "spec.externalTrafficPolicy",
        report,
    );
    let (balanced, proxied) = load_balancer_ips(&object.status, cluster_ips, report);
    let external = ExternalAccess {
        policy,
        ips: external_ips(spec, cluster_ips, report),
        load_balancer_ips: balanced,
        proxied_ips: proxied,
        source_ranges: source_ranges(spec, report),
        health_check_node_port: health_check_node_port(spec, policy, report),
    };
    (external != ExternalAccess::default()).then(|| Box::new(external))
}

/// `spec.externalIPs`, as far as they make sense.
fn external_ips(
    spec: &object::ServiceSpec,
    cluster_ips: &[IpAddr],
    report: &mut Report,
) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for (index, text) in spec.external_ips.iter().enumerate() {
        match parse_external(text, cluster_ips) {
            Ok(address) => addresses.push(address),
            Err(message) => report.add(format!("spec.externalIPs[{index}]"), message),
        }
    }
    addresses
}

/// The addresses of load balancers that nodes serve, and those that they do not. With another
/// `ipMode` than VIP the load balancer delivers to nodes or pods itself (KEP-1860), and a host name
/// is no address at all: both are nothing to report.
fn load_balancer_ips(
    status: &object::ServiceStatus,
    cluster_ips: &[IpAddr],
    report: &mut Report,
) -> (Vec<IpAddr>, Vec<IpAddr>) {
    let (mut served, mut proxied) = (Vec::new(), Vec::new());
    for (index, entry) in status.load_balancer.ingress.iter().enumerate() {
        let Some(text) = non_empty(entry.ip.as_deref()) else {
            continue;
        };
        let is_vip = non_empty(entry.ip_mode.as_deref()).is_none_or(|mode| mode == "VIP");
        if !is_vip {
            proxied.extend(parse_address(text));
            continue;
        }
        match parse_external(text, cluster_ips) {
            Ok(address) => served.push(address),
            Err(message) => {
                report.add(format!("status.loadBalancer.ingress[{index}].ip"), message);
            }
        }
    }
    (served, proxied)
}

/// The error completes the sentence "field: …".
fn parse_external(text: &str, cluster_ips: &[IpAddr]) -> Result<IpAddr, String> {
    let address = parse_ordinary_address(text)?;
    let family = IpFamily::of(address);
    if !cluster_ips
        .iter()
        .any(|&address| IpFamily::of(address) == family)
    {
        return Err(format!(
            "{address} is an {family} address, and the Service has no {family} ClusterIP: it is \
             left out"
        ));
    }
    Ok(address)
}

/// `spec.loadBalancerSourceRanges`. One that cannot be read lets nobody in: left out, it might
/// leave a list that is empty and lets everybody in.
fn source_ranges(spec: &object::ServiceSpec, report: &mut Report) -> Vec<IpNet> {
    let mut ranges = Vec::new();
    for (index, text) in spec.load_balancer_source_ranges.iter().enumerate() {
        if let Some(range) = text.trim().parse().ok().filter(|range| !is_mapped(range)) {
            ranges.push(range);
        } else {
            let message =
                format!("{text:?} is not a CIDR such as 203.0.113.0/24: no client matches it");
            report.add(format!("spec.loadBalancerSourceRanges[{index}]"), message);
            ranges.extend(NOBODY);
        }
    }
    ranges
}

/// Whether it is a range of IPv4 addresses written as IPv6 ones: no packet has such a source.
fn is_mapped(range: &IpNet) -> bool {
    matches!(range.network(), IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// Ranges that no client is in.
const NOBODY: [IpNet; 2] = [
    IpNet::new_assert(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 32),
    IpNet::new_assert(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 128),
];

/// `spec.healthCheckNodePort`, which only means something for type `LoadBalancer` with external
/// policy Local.
fn health_check_node_port(
    spec: &object::ServiceSpec,
    external_policy: TrafficPolicy,
    report: &mut Report,
) -> Option<NonZeroU16> {
    let balanced = spec.r#type.as_deref() == Some("LoadBalancer");
    if !balanced || external_policy != TrafficPolicy::Local {
        return None;
    }
    node_port(spec.health_check_node_port).unwrap_or_else(|message| {
        report.add("spec.healthCheckNodePort", message);
        None
    })
}
