//! The table form of node-local state, in the manner of `kubectl get`.

use proxy_model::{
    Endpoint, FrontendKind, NodeState, ServicePortKey, ServiceState, SourceRanges, TrafficPolicy,
    oracle::Detector,
};

use super::table;

/// More endpoints than this are counted only, as `kubectl` does it.
const ENDPOINTS_SHOWN: usize = 3;

/// A table of so many rows gets a summary.
const SUMMARY_FROM: usize = 20;

pub(super) fn render(state: &NodeState) -> String {
    let mut text = node(state) + "\n";
    if state.services.is_empty() {
        text.push_str("No Services.\n");
    } else {
        text.push_str(&services(state));
    }
    if !state.health_checks.is_empty() {
        text.push_str("\nHealth checks:\n\n");
        text.push_str(&health_checks(state));
    }
    if !state.diagnostics.is_empty() {
        text.push_str("\nDiagnostics:\n\n");
        let mut table = table::new(&["OBJECT", "FIELD", "MESSAGE"]);
        for diagnostic in &*state.diagnostics {
            table.add_row([&*diagnostic.object, &diagnostic.field, &diagnostic.message]);
        }
        text.push_str(&table::finish(&table));
    }
    text
}

fn node(state: &NodeState) -> String {
    let info = &state.node;
    let zone = info.zone().unwrap_or("unknown");
    let mut text = format!("Node {}, zone {zone}", info.name);
    if info.object.is_some() && !info.eligible() {
        text += ", about to be removed: not eligible for load balancers";
    }
    text += "\n";
    let has_node_ports = state
        .services
        .values()
        .flat_map(|service| &service.frontends)
        .any(|frontend| frontend.kind == FrontendKind::NodePort);
    let node_ports = if has_node_ports {
        &*state.node_port_addresses
    } else {
        &[]
    };
    let mut told: Vec<_> = info.addresses().to_vec();
    told.sort_unstable();
    let host = if told == *info.host_addresses {
        &[]
    } else {
        &*info.host_addresses
    };
    for (fact, values) in [
        ("Addresses", table::list(info.addresses())),
        ("Interfaces have", table::list(host)),
        ("NodePorts on", table::list(node_ports)),
        ("Pods from", table::list(info.pod_cidrs())),
        ("Local traffic", local_traffic(&state.traffic.detector)),
        ("ClusterIPs from", table::list(&state.service_cidrs)),
    ] {
        if !values.is_empty() {
            text += &[fact, " ", &values, "\n"].concat();
        }
    }
    if state.traffic.masquerade_all {
        text += "Masquerades all connections to ClusterIPs\n";
    }
    text
}

/// What counts as traffic of this node's pods; empty if nothing tells.
fn local_traffic(detector: &Detector) -> String {
    match detector {
        Detector::None => String::new(),
        Detector::ClusterCidr(cidrs) => format!("comes from {}", table::list(cidrs)),
        Detector::NodeCidr => "comes from this node's pod ranges".to_owned(),
        Detector::BridgeInterface(name) => format!("comes in by {name}"),
        Detector::InterfaceNamePrefix(prefix) => format!("comes in by {prefix}*"),
    }
}

fn services(state: &NodeState) -> String {
    let with_local = state
        .services
        .values()
        .any(|state| state.local_endpoints.is_some());
    let mut header = vec![
        "NAMESPACE",
        "NAME",
        "PORT",
        "PROTOCOL",
        "FAMILY",
        "FRONTENDS",
        "ENDPOINTS",
    ];
    if with_local {
        header.push("LOCAL");
    }
    let with_terms = state
        .services
        .values()
        .any(|state| !terms(state).is_empty());
    if with_terms {
        header.push("TERMS");
    }
    let mut table = table::new(&header);
    for (key, state) in &state.services {
        let mut row = row(key, state);
        if with_local {
            row.push(set(state.local_endpoints.as_deref(), state));
        }
        if with_terms {
            row.push(dash_if_empty(terms(state)));
        }
        table.add_row(row);
    }
    table::finish(&table) + &summary(state)
}

/// What a long table amounts to, below it: where a terminal stops.
fn summary(state: &NodeState) -> String {
    let ports = state.services.len();
    if ports < SUMMARY_FROM {
        return String::new();
    }
    let (mut endpoints, mut refused, mut unreachable) = (0, 0, 0);
    for service in state.services.values() {
        let used = match service.internal_policy {
            TrafficPolicy::Cluster => &service.cluster_endpoints,
            TrafficPolicy::Local => &service.local_endpoints,
        };
        match used.as_deref().map_or(0, <[Endpoint]>::len) {
            0 if service.has_any_endpoints => unreachable += 1,
            0 => refused += 1,
            count => endpoints += count,
        }
    }
    format!(
        "\n{ports} Service ports, {endpoints} endpoints; refused: {refused}, unreachable: \
         {unreachable}\n"
    )
}

fn row(key: &ServicePortKey, state: &ServiceState) -> Vec<String> {
    let frontends: Vec<_> = state.frontends.iter().map(ToString::to_string).collect();
    vec![
        key.service.namespace.to_string(),
        key.service.name.to_string(),
        dash_if_empty(key.port.to_string()),
        key.protocol.to_string(),
        key.family.to_string(),
        if frontends.is_empty() {
            "<none>".to_owned()
        } else {
            frontends.join(",")
        },
        set(state.cluster_endpoints.as_deref(), state),
    ]
}

fn dash_if_empty(text: String) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

/// On which terms clients get an endpoint, where they are not the usual ones.
fn terms(state: &ServiceState) -> String {
    let mut terms = Vec::new();
    if state.frontends.iter().any(|one| one.kind.is_external()) {
        // Without these there is one set only, and its column says which.
        for (name, policy) in [
            ("internal", state.internal_policy),
            ("external", state.external_policy),
        ] {
            if policy == TrafficPolicy::Local {
                terms.push(format!("{name} Local"));
            }
        }
    }
    if let Some(seconds) = state.affinity {
        terms.push(format!("affinity {seconds}s"));
    }
    if let Some(SourceRanges {
        ranges,
        own_address,
    }) = state.source_ranges.as_deref()
    {
        let itself = if *own_address { " and itself" } else { "" };
        terms.push(format!("from {}{itself}", table::list(ranges)));
    }
    terms.join("; ")
}

/// What load balancers are told that ask.
fn health_checks(state: &NodeState) -> String {
    let mut table = table::new(&["NAMESPACE", "NAME", "FAMILY", "PORT", "LOCAL ENDPOINTS"]);
    for (key, check) in &state.health_checks {
        table.add_row([
            key.service.namespace.to_string(),
            key.service.name.to_string(),
            key.family.to_string(),
            check.port.to_string(),
            check.local_endpoints.to_string(),
        ]);
    }
    table::finish(&table)
}

/// A set of endpoints; an empty one says what becomes of connections.
fn set(endpoints: Option<&[Endpoint]>, state: &ServiceState) -> String {
    let Some(endpoints) = endpoints else {
        return "-".to_owned();
    };
    match endpoints.len() {
        0 if state.has_any_endpoints => "<none here> (unreachable)".to_owned(),
        0 => "<none> (refused)".to_owned(),
        count => {
            let shown: Vec<_> = endpoints
                .iter()
                .take(ENDPOINTS_SHOWN)
                .map(|endpoint| endpoint.address.to_string())
                .collect();
            let more = count.saturating_sub(ENDPOINTS_SHOWN);
            if more == 0 {
                shown.join(",")
            } else {
                format!("{} + {more} more", shown.join(","))
            }
        }
    }
}
