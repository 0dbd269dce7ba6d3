//! Hints and zones: what changes with them, and what does not.

use std::sync::Arc;

use proxy_model::{ClusterEvent, EndpointSlice, Hints, Model, Node};

use super::{changes, service, slice};

/// Endpoints `10.0.0.1` and `10.0.0.2` of `shop/web`, each for one zone or for none.
fn endpoints(zones: [&str; 2]) -> ClusterEvent {
    let mut slice: EndpointSlice = slice("web", &["10.0.0.1", "10.0.0.2"]);
    for (endpoint, zone) in slice.endpoints.iter_mut().zip(zones) {
        let hints = Hints {
            zones: vec![zone.into()],
            nodes: Vec::new(),
        };
        endpoint.hints = (!zone.is_empty()).then(|| Arc::new(hints));
    }
    ClusterEvent::SliceUpserted(slice)
}

fn node(zone: &str, eligible: bool) -> ClusterEvent {
    ClusterEvent::NodeUpserted(Node {
        name: "node-a".into(),
        zone: (!zone.is_empty()).then(|| zone.into()),
        pod_cidrs: Vec::new(),
        addresses: Vec::new(),
        eligible,
    })
}

/// Last octets of the endpoints in the cluster set of `shop/web`.
fn chosen(model: &Model) -> String {
    let services = model.state().services.iter();
    let mut of_web = services.filter(|(key, _)| &*key.service.name == "web");
    let (_, web) = of_web.next().expect("the Service is there");
    let set = web.cluster_endpoints.as_deref().unwrap_or_default();
    let octet = |address: String| address.chars().last().unwrap();
    set.iter()
        .map(|one| octet(one.address.ip().to_string()))
        .collect()
}

#[test]
fn hints_and_zones_alone_change_the_set() {
    let mut model = Model::new("node-a");
    for name in ["web", "other"] {
        let address = if name == "web" {
            "10.96.0.1"
        } else {
            "10.96.0.2"
        };
        let service = service(name, address, &[("http", 80)]);
        model.apply(ClusterEvent::ServiceUpserted(service));
    }
    model.apply(ClusterEvent::SliceUpserted(slice("other", &["10.0.0.9"])));
    for (event, expected, upserts) in [
        (
            endpoints(["a", "b"]),
            "12",
            &["+other:http", "+web:http"][..],
        ),
        (node("a", true), "1", &["+web:http"]),
        // Of hints alone, exactly one.
        (endpoints(["b", "a"]), "2", &["+web:http"]),
        (endpoints(["b", "b"]), "12", &["+web:http"]),
        (endpoints(["b", "a"]), "2", &["+web:http"]),
        (endpoints(["", "a"]), "12", &["+web:http"]),
        // Hints that change nothing cost nothing.
        (endpoints(["", ""]), "12", &[]),
        (endpoints(["a", "b"]), "1", &["+web:http"]),
        // Of the node, its zone alone matters here.
        (node("a", false), "1", &[]),
        (node("b", false), "2", &["+web:http"]),
        (node("c", false), "12", &["+web:http"]),
        (node("", false), "12", &[]),
        (node("a", false), "1", &["+web:http"]),
        (
            ClusterEvent::NodeDeleted("node-a".into()),
            "12",
            &["+web:http"],
        ),
    ] {
        let said = format!("{event:?}");
        model.apply(event);
        let change = model.update();
        assert_eq!(changes(&change), upserts, "{said}");
        assert!(!change.node, "{said}");
        assert_eq!(chosen(&model), expected, "{said}");
    }
}
