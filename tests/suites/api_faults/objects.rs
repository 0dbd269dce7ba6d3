//! Objects that make no sense, are larger than any, or come and go by a label.

use std::sync::Arc;

use proxy_agent::cluster::kube::Reason;
use proxy_model::Diagnostic;
use proxy_tests::api_server::{ApiServer, Fault, Kind, On};
use serde_json::{Value, json};

use super::follower::{Follower, change, expected, mixed, patient, service, slice, undo};

/// What is wrong with objects, and whether they can still be named.
const MALFORMED: [(&str, Kind, &str); 9] = [
    (
        "wrong type",
        Kind::Service,
        r#"{"metadata":{"namespace":"shop","name":"bad"},"spec":{"ports":"80"}}"#,
    ),
    (
        "wrong type deep",
        Kind::EndpointSlice,
        r#"{"metadata":{"namespace":"shop","name":"bad"},"addressType":"IPv4","endpoints":[{"addresses":7}],"ports":[]}"#,
    ),
    (
        "wrong number",
        Kind::Service,
        r#"{"metadata":{"namespace":"shop","name":"bad"},"spec":{"clusterIP":"10.96.9.9","ports":[{"port":1e99}]}}"#,
    ),
    (
        "list for a map",
        Kind::ServiceCidr,
        r#"{"metadata":{"name":"bad"},"spec":[]}"#,
    ),
    (
        "node",
        Kind::Node,
        r#"{"metadata":{"name":"node-a","labels":[]},"spec":{}}"#,
    ),
    (
        "no name",
        Kind::Service,
        r#"{"metadata":{},"spec":{"clusterIP":"10.96.9.9"}}"#,
    ),
    ("null", Kind::Service, "null"),
    ("a number", Kind::EndpointSlice, "5"),
    ("empty", Kind::EndpointSlice, "{}"),
];

/// What is said about `object`, such as `Service shop/web`.
fn diagnosed(follower: &Follower, object: &str) -> Vec<Diagnostic> {
    let all = &follower.model.state().diagnostics;
    let of = |one: &&Diagnostic| &*one.object == object;
    all.iter().filter(of).cloned().collect()
}

fn put(server: &ApiServer, kind: Kind, item: &str) {
    let namespace = if kind.is_namespaced() { "shop" } else { "" };
    let name = if kind == Kind::Node { "node-a" } else { "bad" };
    server.apply_raw(kind, namespace, name, item);
}

fn serves(follower: &Follower, name: &str) -> bool {
    let mut services = follower.model.state().services.keys();
    services.any(|key| &*key.service.name == name)
}

#[tokio::test]
async fn malformed_objects_in_lists_stop_only_themselves() {
    for streaming in [true, false] {
        for (case, kind, item) in MALFORMED {
            let server = mixed();
            if !streaming {
                server.inject(Fault::Refused(422, None), On::streaming_list());
            }
            put(&server, kind, item);
            let mut follower = Follower::start(vec![server.url()], patient()).await;
            follower
                .until("everything else", |follower| follower.synced)
                .await;
            assert!(serves(&follower, "web"), "{case}");
            assert_malformed(&follower, case, kind, item);
            change(&server, Kind::Service, 1);
            follower
                .until("a change", |follower| serves(follower, "s1"))
                .await;
            assert_eq!(follower.failures(Reason::Garbled), 0, "{case}");
        }
    }
}

#[tokio::test]
async fn malformed_objects_in_watches_stop_only_themselves() {
    for (case, kind, item) in MALFORMED {
        let server = mixed();
        let mut follower = Follower::start(vec![server.url()], patient()).await;
        follower.agree(&server).await;
        let failures = |follower: &Follower| -> u64 {
            let kinds = follower.counters.kinds.iter();
            let one = |kind: &proxy_agent::cluster::kube::KindCounters| {
                kind.decode_failures
                    .load(std::sync::atomic::Ordering::Relaxed)
            };
            kinds.map(one).sum()
        };
        put(&server, kind, item);
        // What follows it on the same watch shows that it has been read.
        change(&server, kind, 1);
        let before = follower.model.state().clone();
        follower
            .until("the change after it", |follower| {
                let state = follower.model.state();
                let same = state.services == before.services
                    && state.service_cidrs == before.service_cidrs
                    && state.node == before.node;
                !same
            })
            .await;
        if case != "no name" && case != "empty" {
            assert_eq!(failures(&follower), 1, "{case}");
        }
        if kind != Kind::Node {
            assert_malformed(&follower, case, kind, item);
        }
        assert_eq!(follower.failures(Reason::Garbled), 0, "{case}");
    }
}

fn assert_malformed(follower: &Follower, case: &str, kind: Kind, item: &str) {
    let name = match kind {
        Kind::Node => "node-a",
        Kind::ServiceCidr => "bad",
        Kind::Service | Kind::EndpointSlice => "shop/bad",
    };
    let named = item.contains("\"name\"");
    let diagnostics = diagnosed(follower, &format!("{kind} {name}"));
    assert_eq!(
        diagnostics.len(),
        usize::from(named),
        "{case}: {diagnostics:?}"
    );
    for diagnostic in diagnostics {
        assert!(!diagnostic.field.is_empty(), "{case}: {diagnostic:?}");
    }
}

#[tokio::test]
async fn of_an_object_that_becomes_malformed_the_last_good_form_stays() {
    let server = mixed();
    change(&server, Kind::Service, 1);
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.agree(&server).await;
    let before = follower.model.state().services.clone();
    let bad = r#"{"metadata":{"namespace":"shop","name":"s1"},"spec":{"ports":{}}}"#;
    server.apply_raw(Kind::Service, "shop", "s1", bad);
    follower
        .until("a diagnostic", |follower| {
            !diagnosed(follower, "Service shop/s1").is_empty()
        })
        .await;
    assert_eq!(follower.model.state().services, before);
    // As long as it is there: a list says the same.
    server.forget_history();
    server
        .restart(proxy_tests::api_server::Versions::Forget)
        .unwrap();
    change(&server, Kind::Service, 2);
    follower
        .until("a change", |follower| serves(follower, "s2"))
        .await;
    assert!(serves(&follower, "s1"));
    // Until it is put right, or gone.
    change(&server, Kind::Service, 1);
    follower.agree(&server).await;
    assert!(diagnosed(&follower, "Service shop/s1").is_empty());
    server.apply_raw(Kind::Service, "shop", "s1", bad);
    undo(&server, Kind::Service, 1);
    follower.goes_on(&server).await;
}

#[tokio::test]
async fn mistakes_that_can_be_read_are_diagnosed_until_they_are_put_right() {
    let server = mixed();
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.agree(&server).await;
    let mut mistaken = slice("web", 5);
    mistaken["endpoints"][0]["addresses"] = json!(["not an address"]);
    server.apply(&mistaken).unwrap();
    follower
        .until("a diagnostic", |follower| {
            !diagnosed(follower, "EndpointSlice shop/web-s5").is_empty()
        })
        .await;
    follower.agree(&server).await;
    server.apply(&slice("web", 5)).unwrap();
    follower
        .until("its end", |follower| {
            diagnosed(follower, "EndpointSlice shop/web-s5").is_empty()
        })
        .await;
    follower.goes_on(&server).await;
}

#[tokio::test]
async fn objects_come_and_go_by_their_labels() {
    let server = mixed();
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.agree(&server).await;
    for label in [
        "service.kubernetes.io/service-proxy-name",
        "service.kubernetes.io/headless",
    ] {
        change(&server, Kind::Service, 1);
        follower.agree(&server).await;
        assert!(serves(&follower, "s1"));
        let mut foreign = service(1);
        foreign["metadata"]["labels"] = json!({ label: "other" });
        server.apply(&foreign).unwrap();
        follower.agree(&server).await;
        assert!(!serves(&follower, "s1"), "{label}");
    }
    let foreign = server.sight().requests;
    assert!(
        foreign
            .iter()
            .any(|one| one.query.contains("service-proxy-name"))
    );
    follower.goes_on(&server).await;
}

#[tokio::test]
async fn other_nodes_are_not_asked_for() {
    let server = mixed();
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.agree(&server).await;
    let requests = server.sight().requests;
    let mut nodes = requests
        .iter()
        .filter(|one| one.asks.is_some_and(|(_, kind)| kind == Kind::Node));
    assert!(nodes.all(|one| one.query.contains("metadata.name%3Dnode-a")));
}

#[tokio::test]
async fn huge_objects_are_read() {
    let server = mixed();
    let mut huge = service(1);
    huge["metadata"]["annotations"] = json!({ "note": "x".repeat(1_500_000) });
    server.apply(&huge).unwrap();
    let endpoints: Vec<Value> = (0..1000)
        .map(|number| {
            let address = format!("10.244.{}.{}", 100 + number / 250, 1 + number % 250);
            json!({"addresses": [address], "conditions": {"ready": true}})
        })
        .collect();
    let mut many = slice("web", 1);
    many["endpoints"] = json!(endpoints);
    server.apply(&many).unwrap();
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.agree(&server).await;
    huge["spec"]["ports"][0]["port"] = json!(81);
    server.apply(&huge).unwrap();
    follower.goes_on(&server).await;
}

#[tokio::test]
async fn an_empty_cluster_is_a_cluster() {
    let server = ApiServer::new().unwrap();
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.goes_on(&server).await;
    let empty = expected(&[]);
    assert_eq!(Arc::from([]), empty.diagnostics);
}
