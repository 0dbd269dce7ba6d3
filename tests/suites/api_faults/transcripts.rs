//! What a real API server said, byte for byte.

use std::collections::BTreeMap;

use proxy_tests::api_server::{ApiServer, Kind, Transcript};
use serde_json::Value;

use super::follower::{Follower, expected, patient};

macro_rules! data {
    ($name:literal) => {
        include_str!(concat!("../../data/api-server/", $name))
    };
}

type Objects = BTreeMap<String, Value>;

fn key(object: &Value) -> String {
    let text = |field: &str| {
        object["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    format!("{}/{}", text("namespace"), text("name"))
}

fn listed(kind: Kind, list: &str) -> Objects {
    let list: Value = serde_json::from_str(list).unwrap();
    let items = list["items"].as_array().unwrap().iter().cloned();
    items
        .map(|mut item| {
            item["kind"] = kind.name().into();
            item["apiVersion"] = kind.api_version().into();
            (key(&item), item)
        })
        .collect()
}

fn changed(mut objects: Objects, watch: &str) -> Objects {
    for line in watch.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let object = event["object"].clone();
        match event["type"].as_str().unwrap() {
            "ADDED" | "MODIFIED" => drop(objects.insert(key(&object), object)),
            "DELETED" => drop(objects.remove(&key(&object))),
            "BOOKMARK" => {}
            other => panic!("{other}"),
        }
    }
    objects
}

const SERVICES: &str = data!("api-services-list.json");
const SERVICES_CHANGE: &str = data!("api-services-watch.ndjson");
const SLICES: &str = data!("api-endpointslices-list.json");
const SLICES_CHANGE: &str = data!("api-endpointslices-watch.ndjson");
const SLICES_STREAM: &str = data!("api-endpointslices-watchlist.ndjson");

fn replaying(services_change: bool, slices: Transcript) -> ApiServer {
    let server = ApiServer::new().unwrap();
    let services = Transcript {
        list: Some(SERVICES.into()),
        watch: services_change.then(|| SERVICES_CHANGE.into()),
        streaming_list: None,
    };
    server.replay(Kind::Service, Some(services));
    server.replay(Kind::EndpointSlice, Some(slices));
    server
}

fn state(services: Objects, slices: Objects) -> proxy_model::NodeState {
    let objects: Vec<Value> = services.into_values().chain(slices.into_values()).collect();
    expected(&objects)
}

#[tokio::test]
async fn lists_of_a_real_server_are_read() {
    let slices = Transcript {
        list: Some(SLICES.into()),
        ..Transcript::default()
    };
    let server = replaying(false, slices);
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    let wanted = state(
        listed(Kind::Service, SERVICES),
        listed(Kind::EndpointSlice, SLICES),
    );
    assert!(wanted.services.len() > 20);
    follower.agree_with(&wanted).await;
}

#[tokio::test]
async fn watches_of_a_real_server_are_followed() {
    let slices = Transcript {
        list: Some(SLICES.into()),
        watch: Some(SLICES_CHANGE.into()),
        streaming_list: None,
    };
    let server = replaying(true, slices);
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    let services = changed(listed(Kind::Service, SERVICES), SERVICES_CHANGE);
    let slices = changed(listed(Kind::EndpointSlice, SLICES), SLICES_CHANGE);
    follower.agree_with(&state(services, slices)).await;
    // The bookmarks with `null` lists at the end were read as bookmarks.
    follower
        .until("both bookmarks", |follower| {
            let kinds = follower.counters.kinds.iter();
            let bookmarks = |kind: &proxy_agent::cluster::kube::KindCounters| {
                kind.bookmarks.load(std::sync::atomic::Ordering::Relaxed)
            };
            kinds.filter(|kind| bookmarks(kind) >= 2).count() >= 2
        })
        .await;
}

#[tokio::test]
async fn a_streaming_list_of_a_real_server_is_read() {
    let slices = Transcript {
        streaming_list: Some(SLICES_STREAM.into()),
        ..Transcript::default()
    };
    let server = replaying(true, slices);
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    let services = changed(listed(Kind::Service, SERVICES), SERVICES_CHANGE);
    let slices = changed(Objects::new(), SLICES_STREAM);
    follower.agree_with(&state(services, slices)).await;
}
