//! A verdict as a story: the packet, the frontend, the rule, the source, every endpoint that was
//! considered, and what is wrong with the Service.

use proxy_model::{
    Diagnostic, Model, NodeState, Role, ServicePortKey, Standing, TrafficPolicy,
    oracle::{Detector, Masquerade, Outcome, Packet, Path, Reason, Verdict},
};

use super::{nearby, service_port};
use crate::report::table;

/// More endpoints than this are counted only.
const ENDPOINTS_SHOWN: usize = 50;

pub(super) fn tell(model: &Model, packet: &Packet, path: Path, verdict: &Verdict) -> String {
    let state = model.state();
    let mut lines = vec![headline(state, packet, path, verdict), String::new()];
    if let (Some(key), Some(frontend)) = (&verdict.service, &verdict.frontend) {
        lines.push(format!(
            "Frontend: {} {} of {}.",
            frontend.kind.as_str(),
            frontend,
            service_port(key)
        ));
    } else {
        lines.push("Frontend: none.".to_owned());
        lines.extend(nearby::hints(state, packet));
    }
    lines.push(format!("Rule: {}", rule(state, packet, verdict)));
    if verdict.outcome == Outcome::Forward {
        lines.push(format!("Source: {}", source(state, packet, path, verdict)));
    }
    let mut text = lines.join("\n") + "\n";
    if let Some(key) = &verdict.service {
        if let Some(policy) = verdict.set {
            text += &endpoints(model, key, policy);
        }
        text += &diagnostics(model, key);
    }
    text
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
            "is rejected: the sender is told that the port is closed"
        }
        (Outcome::Reject, Path::Socket) => "is refused: ECONNREFUSED, EPERM before Linux 6.1",
        (Outcome::Drop, Path::Packet) => "is dropped: the sender is told nothing",
        (Outcome::Drop, Path::Socket) => "is told EHOSTUNREACH, EPERM before Linux 6.1",
        (Outcome::Pass, _) => "is left alone",
    };
    format!(
        "{who} to {}/{} on node {} {what}.",
        packet.destination, packet.protocol, state.node.name
    )
}

fn rule(state: &NodeState, packet: &Packet, verdict: &Verdict) -> String {
    let to = packet.destination.ip();
    let policy = match verdict.frontend {
        Some(frontend) if frontend.kind.is_external() => "externalTrafficPolicy",
        _ => "internalTrafficPolicy",
    };
    let rule = match verdict.reason {
        Reason::ClusterSet => {
            format!("{policy} Cluster: all usable endpoints of the cluster")
        }
        Reason::LocalSet => format!("{policy} Local: the usable endpoints on this node"),
        Reason::LocalClient => format!(
            "{policy} Local, but the client is on this node: all usable endpoints of the cluster"
        ),
        Reason::SourceRange => format!(
            "{} is in none of the loadBalancerSourceRanges",
            packet.source
        ),
        Reason::PacketPathDecides => {
            "loadBalancerSourceRanges: the source is not known in a socket, so that the packet \
             path decides"
                .to_owned()
        }
        Reason::NoEndpoints => "the Service has no usable endpoint anywhere".to_owned(),
        Reason::NoneByPolicy => {
            format!("{policy} Local, and every usable endpoint is on another node")
        }
        Reason::UnknownPort => {
            format!("{to} is a ClusterIP, but no Service waits on this port")
        }
        Reason::Unallocated => {
            let mut cidrs = state.service_cidrs.iter();
            let cidr = cidrs.find(|cidr| cidr.contains(&to));
            let cidr = cidr.map(ToString::to_string).unwrap_or_default();
            format!("{to} is in {cidr}, where ClusterIPs are taken from, but no Service has it")
        }
        Reason::NoFrontend => "no Service that this node serves waits there".to_owned(),
        Reason::UnseenProtocol => {
            format!("sockets that use {} are not intercepted", packet.protocol)
        }
    };
    rule + "."
}

fn source(state: &NodeState, packet: &Packet, path: Path, verdict: &Verdict) -> String {
    let from = packet.source;
    if path == Path::Socket {
        return "is kept: an address that is translated in a socket needs no masquerade."
            .to_owned();
    }
    let mut reasons = verdict.targets.iter().filter_map(|one| one.masquerade);
    match reasons.next() {
        Some(Masquerade::All) => "becomes this node: masqueradeAll is set.".to_owned(),
        Some(Masquerade::NotLocal) => {
            format!(
                "becomes this node: {from} {}.",
                foreign(state, &state.traffic.detector)
            )
        }
        Some(Masquerade::External) => {
            "becomes this node: externalTrafficPolicy Cluster, and the answer must come back this \
             way."
                .to_owned()
        }
        Some(Masquerade::Host) => {
            format!("becomes the address that this node sends from: {from} is its own.")
        }
        Some(Masquerade::Hairpin) => {
            format!("is kept, except that {from} sees this node when it reaches itself (hairpin).")
        }
        None => match state.traffic.detector.is_local(&state.node, packet) {
            Some(_) => format!("is kept: {from} is local."),
            None => "is kept: nothing says which sources are local.".to_owned(),
        },
    }
}

/// Why a source does not count as a pod of this node.
fn foreign(state: &NodeState, detector: &Detector) -> String {
    match detector {
        Detector::None => "is not local".to_owned(),
        Detector::ClusterCidr(cidrs) => {
            format!("is outside the cluster's pod ranges {}", table::list(cidrs))
        }
        Detector::NodeCidr => format!(
            "is outside this node's pod ranges {}",
            table::list(state.node.pod_cidrs())
        ),
        Detector::BridgeInterface(name) => format!("does not arrive on {name}"),
        Detector::InterfaceNamePrefix(prefix) => {
            format!("does not arrive on an interface named {prefix}…")
        }
    }
}

/// Every endpoint of the Service port: those that are used, then those left out.
fn endpoints(model: &Model, key: &ServicePortKey, policy: TrafficPolicy) -> String {
    let mut standings = model.standings(key, policy);
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
    let more = standings.len().saturating_sub(ENDPOINTS_SHOWN);
    if more > 0 {
        text += &["and ", &more.to_string(), " more\n"].concat();
    }
    text
}

const fn why(role: Role) -> &'static str {
    match role {
        Role::Ready => "ready",
        Role::LastResort => "terminating, but still serving, and none is ready",
        Role::Terminating => "terminating, and others are ready",
        Role::Stopped => "terminating and no longer serving",
        Role::NotReady => "not ready",
        Role::Elsewhere => "not on this node",
        Role::Farther => "ready, but its hints are for other zones or nodes",
    }
}

/// What is wrong with the Service and its EndpointSlices.
fn diagnostics(model: &Model, key: &ServicePortKey) -> String {
    let mut objects = vec![format!("Service {}", key.service)];
    let slices = model.slice_names(&key.service);
    objects.extend(slices.map(|slice| format!("EndpointSlice {slice}")));
    let concerns = |one: &&Diagnostic| objects.iter().any(|object| **object == *one.object);
    let lines: Vec<_> = model
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
