//! The same rules once more, written for obviousness alone: every question is a walk over all
//! objects. Shares nothing with the model but its types.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use proxy_model::{
    Endpoint, EndpointSlice, Frontend, FrontendKind, IpFamily, NodeState, Service, ServicePort,
    ServicePortKey, ServiceState, SliceEndpoint, TrafficPolicy,
};

use crate::walk::{NODE, Objects};

/// Compares `state` with what `objects` mean.
pub fn check(objects: &Objects, state: &NodeState) {
    assert_eq!(&*state.node.name, NODE);
    assert_eq!(state.node.object.as_deref(), objects.nodes.get(NODE));

    let mut cidrs = Vec::new();
    for cidr in objects.service_cidrs.values().flat_map(|one| &one.cidrs) {
        if !cidrs.contains(cidr) {
            cidrs.push(*cidr);
        }
    }
    cidrs.sort();
    assert_eq!(*state.service_cidrs, *cidrs);

    let services: BTreeMap<_, _> = state
        .services
        .iter()
        .map(|(key, state)| (key.clone(), (**state).clone()))
        .collect();
    assert_eq!(services, all_services(objects));

    let fields: Vec<_> = state
        .diagnostics
        .iter()
        .map(|diagnostic| (diagnostic.object.to_string(), diagnostic.field.clone()))
        .collect();
    assert_eq!(fields, all_diagnostics(objects));
}

fn all_services(objects: &Objects) -> BTreeMap<ServicePortKey, ServiceState> {
    let mut services = BTreeMap::new();
    for service in objects.services.values() {
        for port in &service.ports {
            for address in &service.cluster_ips {
                let key = ServicePortKey {
                    service: service.name.clone(),
                    port: port.name.clone(),
                    protocol: port.protocol,
                    family: IpFamily::of(*address),
                };
                let state = service_state(objects, service, port, *address);
                services.insert(key, state);
            }
        }
    }
    services
}

fn service_state(
    objects: &Objects,
    service: &Service,
    port: &ServicePort,
    address: IpAddr,
) -> ServiceState {
    let endpoints = endpoints(objects, service, port, IpFamily::of(address));
    let here: BTreeMap<_, _> = endpoints
        .iter()
        .filter(|(_, endpoint)| endpoint.node.as_deref() == Some(NODE))
        .map(|(address, endpoint)| (*address, *endpoint))
        .collect();
    let local = service.internal_policy == TrafficPolicy::Local;
    let frontend = Frontend {
        kind: FrontendKind::ClusterIp,
        address: Some(address),
        port: port.port,
    };
    let holds = holder(objects, port, address) == (service, port);
    ServiceState {
        frontends: if holds { vec![frontend] } else { vec![] },
        cluster_endpoints: if local {
            None
        } else {
            Some(usable(&endpoints).into())
        },
        local_endpoints: if local {
            Some(usable(&here).into())
        } else {
            None
        },
        has_any_endpoints: !usable(&endpoints).is_empty(),
        internal_policy: service.internal_policy,
        external_policy: TrafficPolicy::Cluster,
        affinity: None,
        source_ranges: None,
    }
}

fn usable(endpoints: &BTreeMap<SocketAddr, &SliceEndpoint>) -> Vec<Endpoint> {
    let mut ready = Vec::new();
    let mut last_resort = Vec::new();
    for (&address, endpoint) in endpoints {
        if endpoint.conditions.ready {
            ready.push(Endpoint { address });
        }
        if endpoint.conditions.serving && endpoint.conditions.terminating {
            last_resort.push(Endpoint { address });
        }
    }
    if ready.is_empty() { last_resort } else { ready }
}

fn endpoints<'a>(
    objects: &'a Objects,
    service: &Service,
    port: &ServicePort,
    family: IpFamily,
) -> BTreeMap<SocketAddr, &'a SliceEndpoint> {
    let belongs = |slice: &&EndpointSlice| slice.service == service.name && slice.family == family;
    let mut endpoints: BTreeMap<SocketAddr, &SliceEndpoint> = BTreeMap::new();
    for slice in objects.slices.values().filter(belongs) {
        for slice_port in &slice.ports {
            if (&slice_port.name, slice_port.protocol) != (&port.name, port.protocol) {
                continue;
            }
            for endpoint in &slice.endpoints {
                // An endpoint moved here from a slice of the other family makes no sense.
                if IpFamily::of(endpoint.address) != family {
                    continue;
                }
                let address = SocketAddr::new(endpoint.address, slice_port.port);
                let best = endpoints.entry(address).or_insert(endpoint);
                if better(endpoint, best) {
                    *best = endpoint;
                }
            }
        }
    }
    endpoints
}

/// Whether copy `a` of an endpoint counts rather than copy `b`.
fn better(a: &SliceEndpoint, b: &SliceEndpoint) -> bool {
    if a.conditions.terminating != b.conditions.terminating {
        return b.conditions.terminating;
    }
    if a.conditions.ready != b.conditions.ready {
        return a.conditions.ready;
    }
    if a.conditions.serving != b.conditions.serving {
        return a.conditions.serving;
    }
    match (&a.node, &b.node) {
        (Some(a), Some(b)) => a < b,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// Who holds `address` at the number and protocol of `port`.
fn holder<'a>(
    objects: &'a Objects,
    port: &ServicePort,
    address: IpAddr,
) -> (&'a Service, &'a ServicePort) {
    objects
        .services
        .values()
        .filter(|service| service.cluster_ips.contains(&address))
        .flat_map(|service| service.ports.iter().map(move |port| (service, port)))
        .filter(|(_, other)| (other.port, other.protocol) == (port.port, port.protocol))
        .min_by_key(|(service, port)| (&service.name.namespace, &service.name.name, &port.name))
        .unwrap()
}

fn all_diagnostics(objects: &Objects) -> Vec<(String, String)> {
    let mut diagnostics: Vec<_> = objects
        .diagnosed
        .values()
        .flatten()
        .map(|diagnostic| (diagnostic.object.to_string(), diagnostic.field.clone()))
        .collect();
    for service in objects.services.values() {
        for port in &service.ports {
            for address in &service.cluster_ips {
                let (other, other_port) = holder(objects, port, *address);
                let object = format!("Service {}", service.name);
                if other.name != service.name {
                    diagnostics.push((object, "spec.clusterIPs".to_owned()));
                } else if other_port != port {
                    diagnostics.push((object, "spec.ports".to_owned()));
                }
            }
        }
    }
    diagnostics.sort();
    diagnostics
}
