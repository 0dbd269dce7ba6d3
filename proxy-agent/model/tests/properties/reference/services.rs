//! The entries of the node-local state, and what load balancers are told.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proxy_model::{
    FrontendKind, HealthCheck, HealthCheckKey, IpFamily, IpNet, Service, ServicePort,
    ServicePortKey, ServiceState, Settings, SourceRanges, TrafficPolicy,
};

use super::{
    claims::{self, Asked},
    endpoints, node_address, ordered,
};
use crate::walk::Objects;

pub(super) fn all(
    settings: &Settings,
    objects: &Objects,
) -> BTreeMap<ServicePortKey, ServiceState> {
    let asked = claims::all_asked(objects);
    let mut services = BTreeMap::new();
    for service in objects.services.values() {
        for port in &service.ports {
            for family in [IpFamily::V4, IpFamily::V6] {
                if claims::has_family(service, family) {
                    let key = ServicePortKey {
                        service: service.name.clone(),
                        port: port.name.clone(),
                        protocol: port.protocol,
                        family,
                    };
                    let local = state(settings, objects, &asked, service, port, family);
                    services.insert(key, local);
                }
            }
        }
    }
    services
}

fn state(
    settings: &Settings,
    objects: &Objects,
    all: &[Asked<'_>],
    service: &Service,
    port: &ServicePort,
    family: IpFamily,
) -> ServiceState {
    let endpoints = endpoints::of(objects, service, port, family);
    // What it asks for decides, whether or not it gets it.
    let mut external_policy = None;
    for frontend in claims::asked_by(service, port, family) {
        if frontend.kind != FrontendKind::ClusterIp {
            let said = service.external.as_ref().map(|external| external.policy);
            external_policy = Some(said.unwrap_or(TrafficPolicy::Cluster));
        }
    }
    let uses_cluster =
        service.internal_policy == TrafficPolicy::Cluster || external_policy.is_some();
    let uses_local = service.internal_policy == TrafficPolicy::Local
        || external_policy == Some(TrafficPolicy::Local);
    let frontends = claims::given(all, service, port, family);
    let is_balanced = frontends
        .iter()
        .any(|frontend| frontend.kind == FrontendKind::LoadBalancerIp);
    ServiceState {
        frontends,
        cluster_endpoints: uses_cluster.then(|| endpoints::cluster_set(objects, &endpoints)),
        local_endpoints: uses_local.then(|| endpoints::local_set(&endpoints)),
        has_any_endpoints: endpoints::has_any(&endpoints),
        internal_policy: service.internal_policy,
        external_policy: external_policy.unwrap_or(TrafficPolicy::Cluster),
        affinity: service.affinity,
        source_ranges: if is_balanced {
            source_ranges(settings, objects, service, family)
        } else {
            None
        },
    }
}

fn source_ranges(
    settings: &Settings,
    objects: &Objects,
    service: &Service,
    family: IpFamily,
) -> Option<Arc<SourceRanges>> {
    let mut ranges: Vec<IpNet> = Vec::new();
    for range in &service.external.as_ref()?.source_ranges {
        if IpFamily::of(range.addr()) == family {
            // A range that is everything restricts nothing, whatever else is said.
            if range.prefix_len() == 0 {
                return None;
            }
            ranges.push(range.trunc());
        }
    }
    if ranges.is_empty() {
        return None;
    }
    let own_address = match node_address(settings, objects, family) {
        Some(address) => ranges.iter().any(|range| range.contains(&address)),
        None => false,
    };
    Some(Arc::new(SourceRanges {
        ranges: ordered(ranges),
        own_address,
    }))
}

pub(super) fn health_checks(objects: &Objects) -> BTreeMap<HealthCheckKey, HealthCheck> {
    let mut checks = BTreeMap::new();
    for service in objects.services.values() {
        let external = service.external.as_ref();
        let Some(port) = external.and_then(|external| external.health_check_node_port) else {
            continue;
        };
        for family in [IpFamily::V4, IpFamily::V6] {
            if !claims::has_family(service, family) {
                continue;
            }
            let mut addresses = BTreeSet::new();
            for port in &service.ports {
                for (address, endpoint) in endpoints::of(objects, service, port, family) {
                    if endpoint.conditions.ready && endpoints::is_here(endpoint) {
                        addresses.insert(address.ip());
                    }
                }
            }
            let key = HealthCheckKey {
                service: service.name.clone(),
                family,
            };
            let local_endpoints = addresses.len();
            checks.insert(
                key,
                HealthCheck {
                    port,
                    local_endpoints,
                },
            );
        }
    }
    checks
}
