//! The table form of node-local state, in the manner of `kubectl get`.

use proxy_model::{Endpoint, NodeState, ServicePortKey, ServiceState, TrafficPolicy};

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
        text += ", about to go: not eligible for load balancers";
    }
    text += "\n";
    for (fact, values) in [
        ("Addresses", table::list(info.addresses())),
        ("Pods from", table::list(info.pod_cidrs())),
        ("ClusterIPs from", table::list(&state.service_cidrs)),
    ] {
        if !values.is_empty() {
            text += &[fact, " ", &values, "\n"].concat();
        }
    }
    text
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
    let mut table = table::new(&header);
    for (key, state) in &state.services {
        let mut row = row(key, state);
        if with_local {
            row.push(set(state.local_endpoints.as_deref(), state));
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
        if key.port.is_empty() {
            "-".to_owned()
        } else {
            key.port.to_string()
        },
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
