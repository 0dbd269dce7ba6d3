//! What the model says in the cases where Services meet: conflicts over an address, and changes
//! that must not touch anyone else.

// `cfg(test)` holds here anyway; written down, it tells clippy that `unwrap` is fine.
#[cfg(test)]
mod claims;
#[cfg(test)]
mod outside;
#[cfg(test)]
mod topology;

use std::sync::Arc;

use proxy_model::{
    Change, ChangeSet, ClusterEvent, Conditions, Diagnostic, EndpointSlice, IpFamily, Model, Node,
    Protocol, Service, ServiceName, ServicePort, SliceEndpoint, SliceName, SlicePort,
    TrafficPolicy, compute,
};

/// The Service `shop/{name}` with these TCP ports.
fn service(name: &str, address: &str, ports: &[(&str, u16)]) -> Service {
    Service {
        name: ServiceName::new("shop", name),
        cluster_ips: vec![address.parse().expect("an IP address")],
        ports: ports
            .iter()
            .map(|&(name, port)| ServicePort {
                name: name.into(),
                protocol: Protocol::Tcp,
                port,
                node_port: None,
            })
            .collect(),
        internal_policy: TrafficPolicy::Cluster,
        ..Service::default()
    }
}

/// The slice `shop/{name}` of the Service of the same name, port `http` at 8080.
fn slice(name: &str, addresses: &[&str]) -> EndpointSlice {
    let endpoint = |address: &&str| SliceEndpoint {
        address: address.parse().expect("an IP address"),
        conditions: Conditions {
            ready: true,
            serving: true,
            terminating: false,
        },
        node: None,
        hints: None,
    };
    EndpointSlice {
        name: SliceName::new("shop", name),
        service: ServiceName::new("shop", name),
        family: IpFamily::V4,
        ports: vec![SlicePort {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: 8080,
        }],
        endpoints: addresses.iter().map(endpoint).collect(),
    }
}

/// Frontends of each entry: `web:http 10.96.0.1:80`.
fn frontends(model: &Model) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, state) in &model.state().services {
        for frontend in &state.frontends {
            let (name, port) = (&key.service.name, &key.port);
            lines.push(format!("{name}:{port} {frontend}"));
        }
    }
    lines
}

fn diagnostics(model: &Model) -> Vec<String> {
    model
        .state()
        .diagnostics
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// `+web:http` for an upsert, `-web:http` for a delete.
fn changes(change: &ChangeSet) -> Vec<String> {
    let line = |change: &Change| {
        let sign = if matches!(change, Change::Upsert { .. }) {
            '+'
        } else {
            '-'
        };
        format!("{sign}{}:{}", change.key().service.name, change.key().port)
    };
    change.changes.iter().map(line).collect()
}

#[test]
fn an_address_passes_to_the_next_claimant_before_its_holder_goes() {
    let mut model = Model::new("node-a");
    for name in ["b", "a"] {
        let service = service(name, "10.96.0.1", &[("http", 80)]);
        model.apply(ClusterEvent::ServiceUpserted(service));
        model.update();
    }
    assert_eq!(frontends(&model), ["a:http 10.96.0.1:80"]);
    assert_eq!(
        diagnostics(&model),
        [
            "Service shop/b: spec.clusterIPs: 10.96.0.1:80/TCP is taken by port \"http\" of \
          Service shop/a (ClusterIP): port \"http\" is not served on it"
        ]
    );
    model.apply(ClusterEvent::ServiceDeleted(ServiceName::new("shop", "a")));
    assert_eq!(changes(&model.update()), ["+b:http", "-a:http"]);
    assert_eq!(frontends(&model), ["b:http 10.96.0.1:80"]);
    assert!(diagnostics(&model).is_empty());
}

#[test]
fn two_ports_of_one_service_cannot_share_a_number() {
    let mut model = Model::new("node-a");
    let web = service("web", "10.96.0.1", &[("b", 80), ("a", 80)]);
    model.apply(ClusterEvent::ServiceUpserted(web));
    model.update();
    assert_eq!(frontends(&model), ["web:a 10.96.0.1:80"]);
    assert_eq!(
        diagnostics(&model),
        [
            "Service shop/web: spec.ports: 10.96.0.1:80/TCP is taken by port \"a\" of this Service \
          (ClusterIP): port \"b\" is not served on it"
        ]
    );
}

#[test]
fn of_two_ports_with_one_name_the_first_counts() {
    let web = service("web", "10.96.0.1", &[("http", 80), ("http", 81)]);
    let mut model = Model::new("node-a");
    model.apply(ClusterEvent::ServiceUpserted(web));
    model.update();
    assert_eq!(frontends(&model), ["web:http 10.96.0.1:80"]);
}

#[test]
fn one_slice_changes_one_service() {
    let mut model = Model::new("node-a");
    for name in ["api", "db", "web"] {
        let service = service(name, "10.96.0.1", &[("http", 80), ("admin", 81)]);
        model.apply(ClusterEvent::ServiceUpserted(service));
        model.apply(ClusterEvent::SliceUpserted(slice(name, &["10.0.0.1"])));
    }
    model.update();
    let before = model.state().clone();
    model.apply(ClusterEvent::SliceUpserted(slice(
        "db",
        &["10.0.0.2", "10.0.0.1"],
    )));
    assert_eq!(changes(&model.update()), ["+db:http"]);
    let unchanged = model
        .state()
        .services
        .iter()
        .filter(|(key, state)| Arc::ptr_eq(state, &before.services[*key]))
        .count();
    assert_eq!((unchanged, before.services.len()), (5, 6));
    // The order of endpoints in a slice means nothing.
    model.apply(ClusterEvent::SliceUpserted(slice(
        "db",
        &["10.0.0.1", "10.0.0.2"],
    )));
    assert!(model.update().is_empty());
}

#[test]
fn a_set_that_did_not_change_stays_where_it_is() {
    let mut model = Model::new("node-a");
    let web = service("web", "10.96.0.1", &[("http", 80)]);
    model.apply(ClusterEvent::ServiceUpserted(web));
    model.apply(ClusterEvent::SliceUpserted(slice("web", &["10.0.0.1"])));
    let set = |model: &Model| {
        let mut states = model.state().services.values();
        states.next().and_then(|one| one.cluster_endpoints.clone())
    };
    model.update();
    let before = set(&model).expect("a set");
    let web = service("web", "10.96.0.1", &[("http", 82)]);
    model.apply(ClusterEvent::ServiceUpserted(web));
    assert_eq!(changes(&model.update()), ["+web:http"]);
    assert!(Arc::ptr_eq(&before, &set(&model).expect("a set")));
}

#[test]
fn diagnostics_change_without_a_change_set() {
    let mut model = Model::new("node-a");
    let object: Arc<str> = "Service shop/web".into();
    let odd = Diagnostic {
        object: Arc::clone(&object),
        field: "spec".to_owned(),
        message: "is odd".to_owned(),
    };
    let diagnosed = |diagnostics: Vec<Diagnostic>| ClusterEvent::Diagnosed {
        object: Arc::clone(&object),
        diagnostics,
    };
    model.apply(diagnosed(vec![odd]));
    assert!(model.update().is_empty());
    assert_eq!(diagnostics(&model), ["Service shop/web: spec: is odd"]);
    model.apply(diagnosed(vec![]));
    assert!(model.update().is_empty());
    assert!(diagnostics(&model).is_empty());
}

/// A backend is told of a node's addresses and pod ranges; what a zone decides arrives as endpoints.
#[test]
fn only_the_own_node_is_told_of() {
    let mut model = Model::new("node-a");
    let node = |name: &str, zone: &str| {
        ClusterEvent::NodeUpserted(Node {
            name: name.into(),
            zone: Some(zone.into()),
            pod_cidrs: vec!["10.244.0.0/24".parse().expect("a CIDR")],
            addresses: vec!["192.0.2.1".parse().expect("an IP address")],
            eligible: true,
        })
    };
    for (event, zone, told) in [
        (node("node-b", "b"), None, false),
        (node("node-a", "a"), Some("a"), true),
        (node("node-a", "b"), Some("b"), false),
        (ClusterEvent::NodeDeleted("node-b".into()), Some("b"), false),
        (ClusterEvent::NodeDeleted("node-a".into()), None, true),
    ] {
        let said = format!("{event:?}");
        model.apply(event);
        let change = model.update();
        assert_eq!(model.state().node.zone(), zone, "{said}");
        assert_eq!((change.node, &*change.changes), (told, &[][..]), "{said}");
    }
}

#[test]
fn a_whole_change_set_is_never_empty() {
    assert!(!compute("node-a", []).as_change_set().is_empty());
}
