//! The endpoints of a Service port, and the sets that they make up.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use proxy_model::{Endpoint, EndpointSlice, IpFamily, Service, ServicePort, SliceEndpoint};

use crate::walk::{NODE, Objects};

/// Endpoints by address and target port.
pub(super) type Endpoints<'a> = BTreeMap<SocketAddr, &'a SliceEndpoint>;

/// All endpoints of a Service port; where slices name one twice, the copy that counts.
pub(super) fn of<'a>(
    objects: &'a Objects,
    service: &Service,
    port: &ServicePort,
    family: IpFamily,
) -> Endpoints<'a> {
    let belongs = |slice: &&EndpointSlice| slice.service == service.name && slice.family == family;
    let mut endpoints: Endpoints<'a> = BTreeMap::new();
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
    smaller(a.node.as_ref(), b.node.as_ref())
        .or_else(|| smaller(a.hints.as_ref(), b.hints.as_ref()))
        .unwrap_or(false)
}

/// Whether `a` is before `b`, where what is there is before what is not; `None` for equal ones.
fn smaller<T: Ord>(a: Option<&T>, b: Option<&T>) -> Option<bool> {
    match (a, b) {
        (Some(a), Some(b)) if a == b => None,
        (Some(a), Some(b)) => Some(a < b),
        (None, None) => None,
        (a, _) => Some(a.is_some()),
    }
}

pub(super) fn is_here(endpoint: &SliceEndpoint) -> bool {
    endpoint.node.as_deref() == Some(NODE)
}

/// Ready ones that topology allows; failing those, the ones that terminate and still answer,
/// wherever they are.
pub(super) fn cluster_set(objects: &Objects, endpoints: &Endpoints<'_>) -> Arc<[Endpoint]> {
    let mut ready = endpoints.clone();
    ready.retain(|_, endpoint| endpoint.conditions.ready);
    let near = near(objects, &ready);
    some_or_last_resort(&near, endpoints)
}

/// The same of those on this node, where topology has no say.
pub(super) fn local_set(endpoints: &Endpoints<'_>) -> Arc<[Endpoint]> {
    let mut here = endpoints.clone();
    here.retain(|_, endpoint| is_here(endpoint));
    let mut ready = here.clone();
    ready.retain(|_, endpoint| endpoint.conditions.ready);
    some_or_last_resort(&ready, &here)
}

fn some_or_last_resort(ready: &Endpoints<'_>, all: &Endpoints<'_>) -> Arc<[Endpoint]> {
    let mut chosen = ready.clone();
    if chosen.is_empty() {
        chosen = all.clone();
        chosen.retain(|_, one| one.conditions.serving && one.conditions.terminating);
    }
    let endpoint = |(address, endpoint): (_, &SliceEndpoint)| Endpoint {
        address,
        local: endpoint.node.is_some().then(|| is_here(endpoint)),
    };
    chosen.into_iter().map(endpoint).collect()
}

/// Those of the ready endpoints that hints keep for this node.
fn near<'a>(objects: &Objects, ready: &Endpoints<'a>) -> Endpoints<'a> {
    let zone = objects.nodes.get(NODE).and_then(|node| node.zone.clone());
    for (by_node, own) in [(true, Some(NODE.into())), (false, zone)] {
        let named = |endpoint: &SliceEndpoint| match &endpoint.hints {
            Some(hints) if by_node => hints.nodes.clone(),
            Some(hints) => hints.zones.clone(),
            None => vec![],
        };
        let Some(own) = own else { continue };
        // All have some, or a rollout is halfway through.
        if ready.values().any(|endpoint| named(endpoint).is_empty()) {
            continue;
        }
        let mut kept = ready.clone();
        kept.retain(|_, endpoint| named(endpoint).contains(&own));
        if !kept.is_empty() {
            return kept;
        }
    }
    ready.clone()
}

/// Whether any endpoint could serve somebody, somewhere.
pub(super) fn has_any(endpoints: &Endpoints<'_>) -> bool {
    endpoints.values().any(|endpoint| {
        let conditions = endpoint.conditions;
        conditions.ready || conditions.serving && conditions.terminating
    })
}
