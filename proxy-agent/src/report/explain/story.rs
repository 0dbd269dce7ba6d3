//! A verdict as a story: the packet, the frontend, the rule, the source, every endpoint that was
//! considered, and what is wrong with the Service.

use proxy_model::{
    Diagnostic, Frontend, NodeState, Role, ServicePortKey, Standing, TrafficPolicy,
    oracle::{Outcome, Packet, Path, Verdict},
};

use super::{Known, nearby, rule, service_port};
use crate::report::table;

/// More endpoints than this are counted only.
const ENDPOINTS_SHOWN: usize = 50;

pub(super) fn tell(known: Known<'_>, packet: &Packet, path: Path, verdict: &Verdict) -> String {
    let state = known.state();
    let mut lines = vec![headline(state, packet, path, verdict), String::new()];
    if let (Some(key), Some(frontend)) = (&verdict.service, &verdict.frontend) {
        lines.push(format!(
            "Frontend: {} {} of {}{}.",
            frontend.kind.as_str(),
            frontend,
            service_port(key),
            own_address(frontend, packet)
        ));
    } else {
        lines.push("Frontend: none.".to_owned());
        lines.extend(nearby::hints(known, packet, path));
    }
    lines.push(format!("Rule: {}", rule::of(state, packet, path, verdict)));
    if verdict.outcome == Outcome::Forward {
        lines.extend(rule::admission(state, packet, verdict));
        lines.extend(affinity(state, verdict));
        lines.push(format!(
            "Source: {}",
            rule::source(state, packet, path, verdict)
        ));
    }
    let mut text = lines.join("\n") + "\n";
    if let Some(key) = &verdict.service {
        if let Some(policy) = verdict.set {
            text += &endpoints(known, key, policy);
        }
        text += &diagnostics(known, key);
    }
    text
}

/// Why a NodePort answers on the address that was dialled.
fn own_address(frontend: &Frontend, packet: &Packet) -> String {
    let to = packet.destination.ip();
    match frontend.address {
        Some(_) => String::new(),
        None if to.is_loopback() || to.is_unspecified() => {
            format!("; processes of this node also reach NodePorts through {to}")
        }
        None => format!("; {to} is an address of this node on which NodePorts answer"),
    }
}

/// Who comes again may have no choice.
fn affinity(state: &NodeState, verdict: &Verdict) -> Option<String> {
    let service = state.services.get(verdict.service.as_ref()?)?;
    let seconds = service.affinity?;
    Some(format!(
        "Affinity: a client that connects again within {seconds} s keeps its endpoint."
    ))
}

fn headline(state: &NodeState, packet: &Packet, path: Path, verdict: &Verdict) -> String {
    let who = match path {
        Path::Packet => match &packet.interface {
            Some(interface) => format!("A packet from {} on {interface}", packet.source),
            None => format!("A packet from {}", packet.source),
        },
        Path::Socket => format!("A local socket of {}", packet.source),
    };
    let what = match (verdict.outcome, path) {
        (Outcome::Forward, _) => match verdict.targets.len() {
            1 => "goes to one endpoint",
            count => &format!("goes to one of {count} endpoints"),
        },
        (Outcome::Reject, Path::Packet) => {
            "is rejected: the sender gets an error, as for a closed port"
        }
        (Outcome::Reject, Path::Socket) => "is refused with ECONNREFUSED (EPERM before Linux 6.1)",
        (Outcome::Drop, Path::Packet) => "is dropped: the sender gets no answer",
        (Outcome::Drop, Path::Socket) => "is refused with EHOSTUNREACH (EPERM before Linux 6.1)",
        (Outcome::Pass, _) => "is left alone",
    };
    format!(
        "{who} to {}/{} on node {} {what}.",
        packet.destination, packet.protocol, state.node.name
    )
}

/// Every endpoint of the Service port: those that are used, then those left out.
fn endpoints(known: Known<'_>, key: &ServicePortKey, policy: TrafficPolicy) -> String {
    let Some(mut standings) = known.standings(key, policy) else {
        return used_endpoints(known.state(), key, policy);
    };
    if standings.is_empty() {
        return "\nNo EndpointSlice has an endpoint for this port and family.\n".to_owned();
    }
    standings.sort_by_key(|standing| !standing.role.is_used());
    let mut table = table::new(&["ENDPOINT", "NODE", "USED", "WHY"]);
    for standing in standings.iter().take(ENDPOINTS_SHOWN) {
        let Standing {
            address,
            node,
            role,
        } = standing;
        let used = if role.is_used() { "yes" } else { "no" };
        table.add_row([&address.to_string(), node.unwrap_or("-"), used, why(*role)]);
    }
    let mut text = "\n".to_owned() + &table::finish(&table);
    text += &more(standings.len());
    text
}

/// The endpoints that the state has: no more of them is known where another brain decided.
fn used_endpoints(state: &NodeState, key: &ServicePortKey, policy: TrafficPolicy) -> String {
    let service = state.services.get(key);
    let set = service.and_then(|service| match policy {
        TrafficPolicy::Cluster => service.cluster_endpoints.as_deref(),
        TrafficPolicy::Local => service.local_endpoints.as_deref(),
    });
    let set = set.unwrap_or_default();
    let mut text = "\n".to_owned();
    if !set.is_empty() {
        let mut table = table::new(&["ENDPOINT", "USED"]);
        for endpoint in set.iter().take(ENDPOINTS_SHOWN) {
            table.add_row([&endpoint.address.to_string(), "yes"]);
        }
        text += &table::finish(&table);
        text += &more(set.len());
    }
    text + "Only the brain that this node follows knows which endpoints are left out, and why.\n"
}

/// A line about those that are not shown; empty if there are none.
fn more(endpoints: usize) -> String {
    match endpoints.saturating_sub(ENDPOINTS_SHOWN) {
        0 => String::new(),
        more => format!("and {more} more\n"),
    }
}

const fn why(role: Role) -> &'static str {
    match role {
        Role::Ready => "ready",
        Role::LastResort => "terminating but still serving, and none is ready",
        Role::Terminating => "terminating, and others are ready",
        Role::Stopped => "terminating and no longer serving",
        Role::NotReady => "not ready",
        Role::Elsewhere => "not on this node",
        Role::Farther => "ready, but its hints are for other zones or nodes",
    }
}

/// What is wrong with the Service and with those EndpointSlices that are known to be its.
fn diagnostics(known: Known<'_>, key: &ServicePortKey) -> String {
    let mut objects = vec![format!("Service {}", key.service)];
    let slices = known.slice_names(&key.service);
    objects.extend(slices.map(|slice| format!("EndpointSlice {slice}")));
    let concerns = |one: &&Diagnostic| objects.iter().any(|object| **object == *one.object);
    let lines: Vec<_> = known
        .state()
        .diagnostics
        .iter()
        .filter(concerns)
        .map(|diagnostic| format!("  {diagnostic}\n"))
        .collect();
    if lines.is_empty() {
        String::new()
    } else {
        format!("\nDiagnostics:\n{}", lines.concat())
    }
}
