//! What one Service means on this node: its entries of the node-local state, and what is wrong
//! with it in the company of the others. Pure: reads the cluster, remembers nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;

use crate::{
    Diagnostic, FrontendKind, HealthCheck, HealthCheckKey, IpFamily, Service, ServicePortKey,
    ServiceState, Settings, SourceRanges, TrafficPolicy,
    cluster::Cluster,
    frontends::{asked_for, families},
    granted::granted,
    select::{Uses, choose},
    settings::first_of,
    slices::{Candidate, merge},
    topology::Place,
};

/// One Service on one node.
#[derive(Debug, Default)]
pub(crate) struct LocalService {
    /// Entries by key.
    pub(crate) entries: BTreeMap<ServicePortKey, ServiceState>,
    /// What load balancers are told, by family.
    pub(crate) health_checks: Vec<(HealthCheckKey, HealthCheck)>,
    /// Addresses it claims and does not get.
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// Computes one Service from the cluster's present objects.
pub(crate) fn localize(cluster: &Cluster, service: &Service, settings: &Settings) -> LocalService {
    let object = cluster.node();
    let place = Place {
        node: &settings.node,
        zone: object.and_then(|node| node.zone.as_deref()),
    };
    let addresses = settings.node_addresses(object.map_or(&[][..], |node| &node.addresses));
    let outside = service.external.as_deref();
    let health_check_port = outside.and_then(|outside| outside.health_check_node_port);
    let mut local = LocalService::default();
    for family in families(service) {
        // Different addresses of ready endpoints here, over all ports.
        let mut ready_here = BTreeSet::new();
        for port in &service.ports {
            let candidates = merge(
                cluster.slices_of(&service.name),
                &port.name,
                port.protocol,
                family,
            );
            if health_check_port.is_some() {
                let here = candidates.iter().filter(|one| is_ready_at(place, one));
                ready_here.extend(here.map(|one| one.address.ip()));
            }
            let mut kinds = asked_for(service, port, family).map(|frontend| frontend.kind);
            let external = kinds
                .any(FrontendKind::is_external)
                .then(|| outside.map_or(TrafficPolicy::Cluster, |outside| outside.policy));
            let sets = choose(
                &candidates,
                Uses::of(service.internal_policy, external),
                place,
            );
            let frontends = granted(
                settings,
                cluster.claims(),
                service,
                port,
                family,
                &mut local.diagnostics,
            );
            let balanced = frontends
                .iter()
                .any(|frontend| frontend.kind == FrontendKind::LoadBalancerIp);
            let state = ServiceState {
                frontends,
                cluster_endpoints: sets.cluster,
                local_endpoints: sets.local,
                has_any_endpoints: sets.has_any,
                internal_policy: service.internal_policy,
                external_policy: external.unwrap_or(TrafficPolicy::Cluster),
                affinity: service.affinity,
                source_ranges: outside
                    .filter(|_| balanced)
                    .and_then(|outside| source_ranges(&outside.source_ranges, family, &addresses))
                    .map(Arc::new),
            };
            let key = ServicePortKey {
                service: service.name.clone(),
                port: Arc::clone(&port.name),
                protocol: port.protocol,
                family,
            };
            // Names and protocols are unique by contract; the first one counts if they are not.
            local.entries.entry(key).or_insert(state);
        }
        if let Some(port) = health_check_port {
            let key = HealthCheckKey {
                service: service.name.clone(),
                family,
            };
            let check = HealthCheck {
                port,
                local_endpoints: ready_here.len(),
            };
            local.health_checks.push((key, check));
        }
    }
    local
}

fn is_ready_at(place: Place<'_>, candidate: &Candidate<'_>) -> bool {
    candidate.conditions.ready && place.is_home(candidate.node) == Some(true)
}

/// Who may dial load-balancer IPs of `family`; `None` if everyone may: without a range of the
/// family, and with one that is everything.
fn source_ranges(ranges: &[IpNet], family: IpFamily, node: &[IpAddr]) -> Option<SourceRanges> {
    let ranges: BTreeSet<IpNet> = ranges
        .iter()
        .filter(|range| IpFamily::of(range.addr()) == family)
        .map(IpNet::trunc)
        .collect();
    if ranges.is_empty() || ranges.iter().any(|range| range.prefix_len() == 0) {
        return None;
    }
    let own_address = first_of(family, node)
        .is_some_and(|address| ranges.iter().any(|range| range.contains(&address)));
    Some(SourceRanges {
        ranges: ranges.into_iter().collect(),
        own_address,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_for_their_family_and_one_that_is_everything_ends_them() {
        let node: Vec<IpAddr> = ["192.0.2.1", "192.0.3.1", "fd00::1"]
            .map(|address| address.parse().unwrap())
            .into();
        for (ranges, family, expected, own_address) in [
            (&[][..], IpFamily::V4, None, false),
            (
                &["203.0.113.7/24", "203.0.113.0/24"],
                IpFamily::V4,
                Some("203.0.113.0/24"),
                false,
            ),
            (&["203.0.113.0/24"], IpFamily::V6, None, false),
            (&["203.0.113.0/24", "0.0.0.0/0"], IpFamily::V4, None, false),
            (
                &["fd00::/64", "0.0.0.0/0"],
                IpFamily::V6,
                Some("fd00::/64"),
                true,
            ),
            (&["192.0.2.0/24"], IpFamily::V4, Some("192.0.2.0/24"), true),
            // Only the first address of a family is the node's.
            (&["192.0.3.0/24"], IpFamily::V4, Some("192.0.3.0/24"), false),
        ] {
            let parsed: Vec<IpNet> = ranges.iter().map(|range| range.parse().unwrap()).collect();
            let found = source_ranges(&parsed, family, &node);
            let shown = found.as_ref().map(|found| found.ranges[0].to_string());
            assert_eq!(shown.as_deref(), expected, "{ranges:?} {family}");
            assert_eq!(
                found.is_some_and(|found| found.own_address),
                own_address,
                "{ranges:?} {family}"
            );
        }
    }
}
