//! Objects as they come, to what is told of them.

use serde_json::{Value, json};

use super::*;
use crate::cluster::kube::{decode, kind::Services};

struct World {
    known: Known<Services>,
    counters: KindCounters,
}

impl World {
    fn new() -> Self {
        Self::with_room_for(1_000)
    }

    fn with_room_for(most: usize) -> Self {
        Self {
            known: Known::new(most),
            counters: KindCounters::default(),
        }
    }

    fn seen(&mut self, object: &Value) -> Vec<String> {
        let mut updates = Vec::new();
        let object = decode::object(object.to_string().as_bytes());
        self.known.seen(object, &self.counters, &mut updates);
        texts(&updates)
    }

    fn gone(&mut self, object: &Value) -> Vec<String> {
        let mut updates = Vec::new();
        let object = decode::object(object.to_string().as_bytes());
        self.known.gone(object, &self.counters, &mut updates);
        texts(&updates)
    }

    fn listed(&mut self, objects: &[Value]) -> Vec<String> {
        self.known.begin_list();
        let mut told: Vec<_> = objects
            .iter()
            .flat_map(|object| self.seen(object))
            .collect();
        let mut updates = Vec::new();
        self.known.end_list(&mut updates);
        told.extend(texts(&updates));
        told
    }
}

fn texts(updates: &[Update]) -> Vec<String> {
    let text = |update: &Update| match &update.event {
        ClusterEvent::ServiceUpserted(service) => format!("+{}", service.name.name),
        ClusterEvent::ServiceDeleted(name) => format!("-{}", name.name),
        ClusterEvent::Diagnosed {
            object,
            diagnostics,
        } => {
            let fields: Vec<_> = diagnostics
                .iter()
                .map(|diagnostic| diagnostic.field.as_str())
                .collect();
            format!("{object}: {}", fields.join(","))
        }
        other => panic!("{other:?}"),
    };
    updates.iter().map(text).collect()
}

fn service(name: &str) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]},
    })
}

fn with(name: &str, field: &str, value: Value) -> Value {
    let mut service = service(name);
    service["spec"][field] = value;
    service
}

const NOTHING: [&str; 0] = [];

#[test]
fn what_a_later_list_does_not_name_is_gone() {
    let mut world = World::new();
    assert_eq!(world.listed(&[service("a"), service("b")]), ["+a", "+b"]);
    assert_eq!(world.seen(&service("c")), ["+c"]);
    assert_eq!(world.listed(&[service("b")]).len(), 3);
    assert_eq!(world.listed(&[]), ["-b"]);
    assert_eq!(world.listed(&[]), NOTHING);
}

#[test]
fn a_list_that_breaks_off_takes_nothing_away() {
    let mut world = World::new();
    world.listed(&[service("a"), service("b")]);
    world.known.begin_list();
    assert_eq!(world.seen(&service("new")), ["+new"]);
    // Again from the start; `new` has gone in between.
    assert_eq!(
        world.listed(&[service("a"), service("b")]),
        ["+a", "+b", "-new"]
    );
}

#[test]
fn deletions_are_told_once_and_only_of_what_was_told() {
    let mut world = World::new();
    assert_eq!(world.gone(&service("a")), NOTHING);
    world.seen(&service("a"));
    assert_eq!(world.gone(&service("a")), ["-a"]);
    assert_eq!(world.gone(&service("a")), NOTHING);
    world.seen(&service("a"));
    let unreadable = with("a", "ports", json!(7));
    assert_eq!(world.gone(&unreadable), ["-a"]);
}

#[test]
fn what_becomes_headless_or_anothers_is_deleted() {
    let mut world = World::new();
    world.seen(&service("a"));
    assert_eq!(world.seen(&with("a", "clusterIP", json!("None"))), ["-a"]);
    assert_eq!(world.seen(&with("a", "clusterIP", json!("None"))), NOTHING);
    assert_eq!(world.seen(&service("a")), ["+a"]);
    let mut others = service("a");
    others["metadata"]["labels"] = json!({"service.kubernetes.io/service-proxy-name": "other"});
    assert_eq!(world.seen(&others), ["-a"]);
}

#[test]
fn what_was_known_of_an_object_stays_while_it_is_malformed() {
    let mut world = World::new();
    world.listed(&[service("a")]);
    let broken = with("a", "ports", json!([{"port": "x"}]));
    assert_eq!(world.seen(&broken), ["Service shop/a: spec.ports[0].port"]);
    // Listed again, it is not gone either.
    assert_eq!(
        world.listed(std::slice::from_ref(&broken)),
        ["Service shop/a: spec.ports[0].port"]
    );
    assert_eq!(world.seen(&service("a")), ["+a", "Service shop/a: "]);
    assert_eq!(world.seen(&service("a")), ["+a"]);
    world.seen(&broken);
    assert_eq!(world.listed(&[]), ["-a", "Service shop/a: "]);
    assert_eq!(world.counters.decode_failures.load(Relaxed), 3);
}

#[test]
fn a_new_object_that_is_malformed_is_diagnosed_until_it_is_gone() {
    let mut world = World::new();
    let broken = with("a", "ports", json!(7));
    assert_eq!(world.seen(&broken), ["Service shop/a: spec.ports"]);
    assert_eq!(world.gone(&broken), ["Service shop/a: "]);
    let nameless = json!({"metadata": {"name": 7}});
    assert_eq!(world.seen(&nameless), NOTHING);
}

#[test]
fn diagnostics_of_an_object_go_with_what_they_are_about() {
    let mut world = World::new();
    let sticky = with("a", "sessionAffinity", json!("Cookie"));
    assert_eq!(
        world.seen(&sticky),
        ["+a", "Service shop/a: spec.sessionAffinity"]
    );
    assert_eq!(world.seen(&service("a")), ["+a", "Service shop/a: "]);
    world.seen(&sticky);
    assert_eq!(world.gone(&sticky), ["-a", "Service shop/a: "]);
}

#[test]
fn of_too_many_the_known_stay_and_the_others_wait_for_room() {
    // Each has a port.
    let mut world = World::with_room_for(4);
    let full = "ServiceList: items";
    assert_eq!(
        world.listed(&[service("a"), service("b"), service("c")]),
        ["+a", "+b", full]
    );
    assert_eq!(world.known.left_out(), 1);
    assert!(!world.known.wants_list(), "there is no room");
    // Whatever the order, a list takes nothing away that works.
    let all = [service("d"), service("c"), service("b"), service("a")];
    assert_eq!(world.listed(&all), ["+b", "+a"]);
    assert_eq!(world.seen(&service("c")), NOTHING);
    assert_eq!(world.known.left_out(), 2, "told twice, counted once");
    let broken = with("e", "ports", json!(7));
    assert_eq!(world.seen(&broken), NOTHING);
    assert_eq!(world.gone(&broken), NOTHING);
    assert_eq!(world.gone(&service("d")), NOTHING);
    assert_eq!(world.known.left_out(), 1);
    assert_eq!(world.gone(&service("a")), ["-a"]);
    assert!(world.known.wants_list(), "there is room");
    assert_eq!(
        world.listed(&[service("c"), service("b")]),
        ["+c", "+b", "ServiceList: "]
    );
    assert!(!world.known.wants_list());
}

#[test]
fn what_goes_with_a_list_makes_room_for_what_it_names() {
    let mut world = World::with_room_for(4);
    world.listed(&[service("a"), service("b")]);
    let told = world.listed(&[service("c"), service("d")]);
    assert_eq!(told[2], "ServiceList: items", "{told:?}");
    assert!(world.known.wants_list());
    assert_eq!(
        world.listed(&[service("c"), service("d")]),
        ["+c", "+d", "ServiceList: "]
    );
}

#[test]
fn an_object_that_is_too_large_for_all_room_is_left_out_once() {
    let mut world = World::with_room_for(4);
    let ports: Vec<_> = (1..=9)
        .map(|port| json!({"name": port.to_string(), "port": port}))
        .collect();
    let large = with("l", "ports", json!(ports));
    world.listed(&[service("a"), large.clone()]);
    world.gone(&service("a"));
    assert!(world.known.wants_list());
    world.listed(&[large]);
    assert!(!world.known.wants_list(), "nothing has become free since");
}
