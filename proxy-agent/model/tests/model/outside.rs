//! Services that are reached from outside the cluster: a change of type takes down all that the
//! old type had, and load balancers are told what holds now.

use std::num::NonZeroU16;

use proxy_model::{
    ClusterEvent, ExternalAccess, Model, Node, NodePortSelection, Service, ServiceName, Settings,
    TrafficPolicy, compute,
};

use super::{changes, frontends, service, slice};

const TYPES: &[&str] = &[
    "ClusterIP",
    "NodePort",
    "LoadBalancer",
    "LoadBalancer without NodePorts",
    "external IPs",
    // A source reports these as deleted.
    "ExternalName",
];

/// The Service `shop/web` as each type has it; `None` if no proxy serves it.
fn of_type(name: &str) -> Option<Service> {
    let mut web = service("web", "10.96.0.1", &[("http", 80)]);
    let mut external = ExternalAccess::default();
    match name {
        "NodePort" => web.ports[0].node_port = NonZeroU16::new(30080),
        "LoadBalancer" | "LoadBalancer without NodePorts" => {
            external = ExternalAccess {
                policy: TrafficPolicy::Local,
                load_balancer_ips: vec!["203.0.113.1".parse().unwrap()],
                source_ranges: vec!["198.51.100.0/24".parse().unwrap()],
                health_check_node_port: NonZeroU16::new(31000),
                ..ExternalAccess::default()
            };
            if name == "LoadBalancer" {
                web.ports[0].node_port = NonZeroU16::new(30080);
            }
        }
        "external IPs" => external.ips = vec!["203.0.113.2".parse().unwrap()],
        "ExternalName" => return None,
        _ => {}
    }
    if external != ExternalAccess::default() {
        web.external = Some(Box::new(external));
    }
    Some(web)
}

fn event(web: Option<Service>) -> ClusterEvent {
    match web {
        Some(web) => ClusterEvent::ServiceUpserted(web),
        None => ClusterEvent::ServiceDeleted(ServiceName::new("shop", "web")),
    }
}

#[test]
fn each_type_has_its_frontends() {
    for (name, expected) in [
        ("ClusterIP", &["10.96.0.1:80"][..]),
        ("NodePort", &["10.96.0.1:80", "*:30080"]),
        (
            "LoadBalancer",
            &["10.96.0.1:80", "203.0.113.1:80", "*:30080"],
        ),
        (
            "LoadBalancer without NodePorts",
            &["10.96.0.1:80", "203.0.113.1:80"],
        ),
        ("external IPs", &["10.96.0.1:80", "203.0.113.2:80"]),
        ("ExternalName", &[]),
    ] {
        let model = Model::after("node-a", [event(of_type(name))]);
        let expected: Vec<_> = expected
            .iter()
            .map(|one| format!("web:http {one}"))
            .collect();
        assert_eq!(frontends(&model), expected, "{name}");
    }
}

#[test]
fn a_change_of_type_leaves_nothing_of_the_old_one() {
    for old in TYPES {
        for new in TYPES {
            let mut model = Model::new("node-a");
            let endpoints = ClusterEvent::SliceUpserted(slice("web", &["10.0.0.1"]));
            model.apply(endpoints.clone());
            model.apply(event(of_type(old)));
            model.update();
            model.apply(event(of_type(new)));
            let change = changes(&model.update());
            let expected = match (of_type(old), of_type(new)) {
                (old, new) if old == new => &[][..],
                (_, Some(_)) => &["+web:http"],
                (_, None) => &["-web:http"],
            };
            assert_eq!(change, expected, "{old} to {new}");
            let afresh = compute("node-a", [endpoints, event(of_type(new))]);
            assert_eq!(*model.state(), afresh, "{old} to {new}");
        }
    }
}

#[test]
fn a_node_that_gets_an_address_may_get_source_ranges_that_hold_it() {
    let mut model = Model::after("node-a", [event(of_type("LoadBalancer"))]);
    let own_address = |model: &Model| {
        let mut services = model.state().services.values();
        let ranges = services.next().unwrap().source_ranges.clone();
        ranges.expect("the Service has ranges").own_address
    };
    assert!(!own_address(&model));
    model.apply(ClusterEvent::NodeUpserted(node("198.51.100.1")));
    let change = model.update();
    assert_eq!(
        (changes(&change), change.node),
        (vec!["+web:http".to_owned()], true)
    );
    assert!(own_address(&model));
}

fn node(address: &str) -> Node {
    Node {
        name: "node-a".into(),
        zone: None,
        pod_cidrs: Vec::new(),
        addresses: vec![address.parse().unwrap()],
        eligible: true,
    }
}

#[test]
fn what_load_balancers_are_told_changes_without_a_change_set() {
    let told = |model: &Model| -> Vec<_> {
        let checks = model.state().health_checks.iter();
        checks
            .map(|(key, check)| {
                (
                    key.service.to_string(),
                    check.port.get(),
                    check.local_endpoints,
                )
            })
            .collect()
    };
    let mut model = Model::after("node-a", [event(of_type("LoadBalancer"))]);
    assert_eq!(told(&model), [("shop/web".to_owned(), 31000, 0)]);
    let mut here = slice("web", &["10.0.0.1", "10.0.0.2", "10.0.0.1"]);
    for endpoint in &mut here.endpoints {
        endpoint.node = Some("node-a".into());
    }
    model.apply(ClusterEvent::SliceUpserted(here));
    model.update();
    assert_eq!(told(&model), [("shop/web".to_owned(), 31000, 2)]);
    let mut web = of_type("LoadBalancer").unwrap();
    if let Some(external) = &mut web.external {
        external.health_check_node_port = NonZeroU16::new(31001);
    }
    model.apply(ClusterEvent::ServiceUpserted(web));
    assert!(model.update().is_empty());
    assert_eq!(told(&model), [("shop/web".to_owned(), 31001, 2)]);
    model.apply(event(None));
    model.update();
    assert_eq!(told(&model), []);
}

#[test]
fn the_host_tells_where_node_ports_answer() {
    let settings = Settings {
        node_ports: NodePortSelection::Cidrs(vec!["192.0.2.0/24".parse().unwrap()]),
        localhost_node_ports: false,
        ..Settings::from("node-a")
    };
    let mut model = Model::new(settings);
    let host = |addresses: &[&str]| {
        let addresses = addresses.iter().map(|address| address.parse().unwrap());
        ClusterEvent::HostAddresses(addresses.collect())
    };
    for (event, told, expected) in [
        (
            ClusterEvent::NodeUpserted(node("192.0.2.1")),
            true,
            "192.0.2.1",
        ),
        (host(&["192.0.2.2", "198.51.100.1"]), true, "192.0.2.2"),
        // Once the host speaks, the Node object no longer does.
        (
            ClusterEvent::NodeUpserted(node("192.0.2.3")),
            false,
            "192.0.2.2",
        ),
        (host(&["198.51.100.1", "192.0.2.2"]), false, "192.0.2.2"),
        // Not selected, but the host's all the same.
        (host(&["192.0.2.2"]), true, "192.0.2.2"),
        (
            host(&["192.0.2.2", "192.0.2.9"]),
            true,
            "192.0.2.2 192.0.2.9",
        ),
    ] {
        let said = format!("{event:?}");
        model.apply(event);
        assert_eq!(model.update().node, told, "{said}");
        let addresses = model.state().node_port_addresses.iter();
        let addresses: Vec<_> = addresses.map(ToString::to_string).collect();
        assert_eq!(addresses.join(" "), expected, "{said}");
    }
}
