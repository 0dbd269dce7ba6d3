//! What a change of the state means for flows that exist: whether any can have become stale, and
//! which frontends nobody has any more. Pure.

use std::{
    collections::{BTreeSet, HashSet},
    net::SocketAddr,
};

use proxy_model::{
    Change, ChangeSet, Frontend, FrontendKind, IpFamily, NodeState, Protocol, ServicePortKey,
    ServiceState,
};

use super::{allowed::Allowed, expected::node_addresses};

/// Whether a change can have made UDP flows stale: a frontend came, went or lost an endpoint, or
/// had none and has one now. Further endpoints for a frontend that has some make none stale.
///
/// `change` leads from `before` to `now`.
pub fn needs_cleaning(before: &NodeState, now: &NodeState, change: &ChangeSet) -> bool {
    if addresses_differ(before, now) && (has_udp_node_port(before) || has_udp_node_port(now)) {
        return true;
    }
    touched(before, now, change).any(|key| {
        let (before, now) = (before.services.get(key), now.services.get(key));
        makes_stale(before.map(|of| &**of), now.map(|of| &**of))
    })
}

/// The addresses of UDP frontends that a Service port lost by the change. Another one may have
/// them in `now`.
pub fn gone(before: &NodeState, now: &NodeState, change: &ChangeSet) -> BTreeSet<SocketAddr> {
    let mut gone = BTreeSet::new();
    for key in touched(before, now, change) {
        let Some(earlier) = before.services.get(key) else {
            continue;
        };
        let kept = now.services.get(key).map(|now| &*now.frontends);
        for frontend in &earlier.frontends {
            if !kept.unwrap_or_default().contains(frontend) {
                gone.extend(dialled(before, key, *frontend));
            }
        }
    }
    if addresses_differ(before, now) {
        let kept: HashSet<_> = node_addresses(now).collect();
        for (key, service) in &before.services {
            for frontend in node_ports(key, service) {
                let dialled = dialled(before, key, *frontend);
                gone.extend(dialled.filter(|address| !kept.contains(&address.ip())));
            }
        }
    }
    gone
}

/// The UDP Service ports that `change` is about, those of both states if it is about all.
fn touched<'a>(
    before: &'a NodeState,
    now: &'a NodeState,
    change: &'a ChangeSet,
) -> impl Iterator<Item = &'a ServicePortKey> {
    let all = change.whole.then(|| {
        let only_before = before.services.keys();
        let only_before = only_before.filter(|key| !now.services.contains_key(*key));
        only_before.chain(now.services.keys())
    });
    let some = (!change.whole).then(|| change.changes.iter().map(Change::key));
    let touched = all.into_iter().flatten().chain(some.into_iter().flatten());
    touched.filter(|key| key.protocol == Protocol::Udp)
}

fn makes_stale(before: Option<&ServiceState>, now: Option<&ServiceState>) -> bool {
    let frontends = |of: Option<&ServiceState>| of.map(|of| of.frontends.clone());
    if frontends(before).unwrap_or_default() != frontends(now).unwrap_or_default() {
        return true;
    }
    let (Some(before), Some(now)) = (before, now) else {
        return false;
    };
    before.frontends.iter().any(|frontend| {
        let earlier = Allowed::of(before, frontend.kind);
        let now = Allowed::of(now, frontend.kind);
        !earlier.is_within(&now) || earlier.is_empty() != now.is_empty()
    })
}

fn addresses_differ(before: &NodeState, now: &NodeState) -> bool {
    before.node_port_addresses != now.node_port_addresses
}

fn has_udp_node_port(state: &NodeState) -> bool {
    let mut services = state.services.iter();
    services.any(|(key, service)| node_ports(key, service).next().is_some())
}

fn node_ports<'a>(
    key: &ServicePortKey,
    service: &'a ServiceState,
) -> impl Iterator<Item = &'a Frontend> {
    let udp = key.protocol == Protocol::Udp;
    let frontends = service.frontends.iter();
    frontends.filter(move |frontend| udp && frontend.kind == FrontendKind::NodePort)
}

/// What a client may have dialled to reach a frontend.
fn dialled(
    state: &NodeState,
    key: &ServicePortKey,
    frontend: Frontend,
) -> impl Iterator<Item = SocketAddr> {
    let family = key.family;
    let everywhere = frontend
        .address
        .is_none()
        .then(|| node_addresses(state).filter(move |address| IpFamily::of(*address) == family));
    let addresses = everywhere.into_iter().flatten().chain(frontend.address);
    addresses.map(move |address| SocketAddr::new(address, frontend.port))
}
