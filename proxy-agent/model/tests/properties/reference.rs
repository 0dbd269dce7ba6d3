//! The same rules once more, written for obviousness alone: every question is a walk over all
//! objects. Shares nothing with the model but its types.

mod claims;
mod endpoints;
mod services;

use std::{collections::BTreeMap, net::IpAddr};

use proxy_model::{IpFamily, IpNet, NodePortSelection, NodeState, Settings};

use crate::walk::{NODE, Objects};

/// Compares `state` with what `objects` mean.
pub fn check(settings: &Settings, objects: &Objects, state: &NodeState) {
    assert_eq!(&*state.node.name, NODE);
    assert_eq!(state.node.object.as_deref(), objects.nodes.get(NODE));
    assert_eq!(*state.node.host_addresses, *host_addresses(objects));
    assert_eq!(state.traffic, settings.traffic);
    assert_eq!(
        *state.node_port_addresses,
        *node_port_addresses(settings, objects)
    );

    let cidrs = objects.service_cidrs.values().flat_map(|one| &one.cidrs);
    assert_eq!(*state.service_cidrs, *ordered(cidrs.copied().collect()));

    let services: BTreeMap<_, _> = state
        .services
        .iter()
        .map(|(key, state)| (key.clone(), (**state).clone()))
        .collect();
    assert_eq!(services, services::all(settings, objects));

    let health_checks: BTreeMap<_, _> = state
        .health_checks
        .iter()
        .map(|(key, check)| (key.clone(), *check))
        .collect();
    assert_eq!(health_checks, services::health_checks(objects));

    assert_eq!(*state.diagnostics, *claims::diagnostics(objects));
}

fn ordered<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort();
    items.dedup();
    items
}

/// What the Node object says; nothing without one.
fn node_addresses(objects: &Objects) -> Vec<IpAddr> {
    match objects.nodes.get(NODE) {
        Some(node) => node.addresses.clone(),
        None => vec![],
    }
}

/// The address of this node, where only one of a family counts.
fn node_address(settings: &Settings, objects: &Objects, family: IpFamily) -> Option<IpAddr> {
    let mut addresses = settings.node_ips.clone();
    addresses.extend(node_addresses(objects));
    addresses
        .into_iter()
        .find(|address| IpFamily::of(*address) == family)
}

fn host_addresses(objects: &Objects) -> Vec<IpAddr> {
    match &objects.host_addresses {
        Some(addresses) => ordered(addresses.clone()),
        None => ordered(node_addresses(objects)),
    }
}

fn node_port_addresses(settings: &Settings, objects: &Objects) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    if settings.node_ports == NodePortSelection::Primary {
        addresses.extend(node_address(settings, objects, IpFamily::V4));
        addresses.extend(node_address(settings, objects, IpFamily::V6));
        return ordered(addresses);
    }
    for address in host_addresses(objects) {
        if !address.is_loopback() && is_selected(settings, address) {
            addresses.push(address);
        }
    }
    // Every host has these two, which stand for all loopback addresses of their family.
    for loopback in ["127.0.0.1", "::1"] {
        let loopback = loopback.parse().unwrap();
        if settings.localhost_node_ports && is_selected(settings, loopback) {
            addresses.push(loopback);
        }
    }
    ordered(addresses)
}

fn is_selected(settings: &Settings, address: IpAddr) -> bool {
    let NodePortSelection::Cidrs(cidrs) = &settings.node_ports else {
        return true;
    };
    let of_family: Vec<&IpNet> = cidrs
        .iter()
        .filter(|cidr| cidr.addr().is_ipv4() == address.is_ipv4())
        .collect();
    of_family.is_empty() || of_family.iter().any(|cidr| cidr.contains(&address))
}
