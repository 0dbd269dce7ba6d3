//! What is near a destination that no frontend has: most questions are about typing errors
//! and about what is not served.

use std::{collections::BTreeSet, net::IpAddr};

use proxy_model::{
    IpFamily, NodeState, Protocol, ServicePortKey, ServiceState,
    oracle::{self, Packet, Path},
};

use super::{Known, service_port};

/// What could have been meant, one sentence each; the nearest first.
pub(super) fn hints(known: Known<'_>, packet: &Packet, path: Path) -> Vec<String> {
    let state = known.state();
    let to = packet.destination;
    if let Some(hint) = unseen(state, packet, path) {
        return vec![hint];
    }
    let mut hints = other_protocols(state, packet);
    if hints.is_empty() {
        hints.extend(other_ports(state, to.ip()));
    }
    hints.extend(endpoint_of(state, packet));
    hints.extend(own_address(state, packet, path));
    hints.extend(known.proxied(to.ip()).map(|service| {
        format!(
            "It is an IP of the load balancer of {service} with ipMode Proxy: the load balancer \
             itself serves it, not the nodes."
        )
    }));
    if hints.is_empty() && known.is_state_only() {
        let unknown = "Only the brain that this node follows knows whether a load balancer serves \
                       it itself (ipMode Proxy).";
        hints.push(unknown.to_owned());
    }
    hints
}

/// The Service port that has this address, where only the path is why it was not found.
fn unseen(state: &NodeState, packet: &Packet, path: Path) -> Option<String> {
    if path == Path::Packet || packet.protocol != Protocol::Sctp {
        return None;
    }
    let key = oracle::verdict(state, packet, Path::Packet).service?;
    Some(format!(
        "{} is served there, but only for packets: --path packet shows what happens to those.",
        service_port(&key)
    ))
}

/// What NodePorts have to do with it, where this node is what was dialled.
fn own_address(state: &NodeState, packet: &Packet, path: Path) -> Option<String> {
    let to = packet.destination;
    let ip = to.ip();
    let is_own = state.node.is_host(ip) || state.node_port_addresses.contains(&ip);
    if !is_own && !ip.is_unspecified() {
        return None;
    }
    let (port, protocol) = (to.port(), packet.protocol);
    let mut services = state.services.iter();
    let node_port = services.find(|(key, service)| {
        let mut frontends = service.frontends.iter();
        (key.protocol, key.family) == (protocol, IpFamily::of(ip))
            && frontends.any(|one| (one.address, one.port) == (None, port))
    });
    let Some((key, _)) = node_port else {
        return Some(format!(
            "{ip} is an address of this node, and there is no NodePort {port} for {protocol}."
        ));
    };
    let key = service_port(key);
    let why_not = if packet.protocol == Protocol::Sctp && path == Path::Socket {
        "sockets that use SCTP are not intercepted"
    } else if ip.is_loopback() && path == Path::Packet {
        "only processes of this node reach NodePorts through loopback addresses, when they dial \
         (--path socket)"
    } else if (ip.is_loopback() || ip.is_unspecified()) && !state.node.is_host(packet.source) {
        "a pod's loopback addresses are its own"
    } else if ip.is_loopback() || ip.is_unspecified() {
        "nodePortAddresses or localhostNodePorts leave out loopback addresses"
    } else {
        "nodePortAddresses leave it out"
    };
    Some(format!(
        "NodePort {port} of {key} does not answer on {ip}: {why_not}."
    ))
}

fn other_protocols(state: &NodeState, packet: &Packet) -> Vec<String> {
    let to = packet.destination;
    let waits = |service: &ServiceState| {
        let mut frontends = service.frontends.iter();
        frontends.any(|one| (one.address, one.port) == (Some(to.ip()), to.port()))
    };
    let hint = |key: &ServicePortKey| {
        format!(
            "{} is served there for {}, not for {}.",
            service_port(key),
            key.protocol,
            packet.protocol
        )
    };
    let services = state.services.iter();
    services
        .filter(|(key, service)| key.protocol != packet.protocol && waits(service))
        .map(|(key, _)| hint(key))
        .collect()
}

/// The Service whose address it is, and its ports.
fn other_ports(state: &NodeState, address: IpAddr) -> Option<String> {
    let mut names = BTreeSet::new();
    let mut ports = BTreeSet::new();
    for (key, service) in &state.services {
        for frontend in &service.frontends {
            if frontend.address == Some(address) {
                names.insert(key.service.to_string());
                ports.insert((frontend.port, key.protocol));
            }
        }
    }
    if names.is_empty() {
        return None;
    }
    let names: Vec<_> = names.into_iter().collect();
    let ports: Vec<_> = ports
        .into_iter()
        .map(|(port, protocol)| format!("{port}/{protocol}"))
        .collect();
    Some(format!(
        "{address} belongs to {}, which is served on {} only.",
        names.join(" and "),
        ports.join(", ")
    ))
}

/// The Service port that the destination is an endpoint of.
fn endpoint_of(state: &NodeState, packet: &Packet) -> Option<String> {
    let uses = |service: &ServiceState| {
        [&service.cluster_endpoints, &service.local_endpoints]
            .into_iter()
            .flatten()
            .flat_map(|set| set.iter())
            .any(|endpoint| endpoint.address == packet.destination)
    };
    let (key, _) = state
        .services
        .iter()
        .find(|(key, service)| key.protocol == packet.protocol && uses(service))?;
    Some(format!(
        "It is an endpoint of {}, dialled directly.",
        service_port(key)
    ))
}
