//! The server against what a real one said, and each of its faults as a client sees it.

mod client;

use std::{io, net::TcpStream, time::Duration};

use serde_json::{Value, json};

use self::client::{Client, get};
use super::*;

const SELECTOR: &str = "labelSelector=%21service.kubernetes.io%2Fheadless%2C%21service.kubernetes.io%2Fservice-proxy-name";
const STREAMING: &str = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
    &allowWatchBookmarks=true";
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
const SERVICES: &str = "/api/v1/services";

macro_rules! data {
    ($name:literal) => {
        include_str!(concat!("../../data/", $name))
    };
}

/// An open watch, past its first events.
fn watch(server: &ApiServer, kind: Kind, query: &str) -> Client {
    let before = server.sight().open(kind);
    let path = if kind == Kind::Service {
        SERVICES
    } else {
        SLICES
    };
    let mut client = Client::ask(server, path, query);
    assert_eq!(client.head().unwrap().0, 200);
    server
        .wait("an open watch", |seen| {
            (seen.open(kind) > before).then_some(())
        })
        .unwrap();
    client
}

fn service(name: &str, label: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "shop", "name": name, "labels": {"app": label}},
        "spec": {"clusterIP": "10.96.0.1"},
    })
}

fn mixed() -> ApiServer {
    let server = ApiServer::new().unwrap();
    server.apply_yaml(data!("cluster-mixed.yaml")).unwrap();
    server
}

/// The object without what differs from one server or capture to the next.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    let fields = object.as_object_mut().unwrap();
    fields.remove("kind");
    fields.remove("apiVersion");
    let metadata = fields["metadata"].as_object_mut().unwrap();
    for own in ["resourceVersion", "managedFields", "generation"] {
        metadata.remove(own);
    }
    object
}

fn event(event: &Value) -> (String, String) {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
    let owned = |pointer: &str| text(pointer).unwrap_or_default().to_owned();
    (owned("/type"), owned("/object/metadata/name"))
}

fn pair(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

#[test]
fn lists_hold_what_a_real_server_lists() {
    let server = mixed();
    for (path, real) in [
        (SERVICES, data!("api-server/api-services-list.json")),
        (SLICES, data!("api-server/api-endpointslices-list.json")),
    ] {
        let real: Value = serde_json::from_str(real).unwrap();
        let (status, ours) = get(&server, path, SELECTOR);
        assert_eq!(status, 200);
        for field in ["kind", "apiVersion"] {
            assert_eq!(ours[field], real[field], "{path}");
        }
        let (ours, real) = (&ours["items"], &real["items"]);
        assert_eq!(
            ours.as_array().unwrap().len(),
            real.as_array().unwrap().len()
        );
        for (ours, real) in ours
            .as_array()
            .unwrap()
            .iter()
            .zip(real.as_array().unwrap())
        {
            assert_eq!(comparable(ours), comparable(real), "{path}");
        }
    }
}

#[test]
fn streaming_lists_hold_what_a_real_server_streams() {
    let server = mixed();
    // What happened between the two captures.
    server
        .delete(Kind::EndpointSlice, "shop", "samenode-a")
        .unwrap();
    let real = data!("api-server/api-endpointslices-watchlist.ndjson").lines();
    let real: Vec<Value> = real
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut client = watch(
        &server,
        Kind::EndpointSlice,
        &format!("{STREAMING}&{SELECTOR}"),
    );
    let ours = client.events(|event| event["type"] == "BOOKMARK");
    assert_eq!(ours.len(), real.len());
    for (ours, real) in ours.iter().zip(&real) {
        assert_eq!(event(ours), event(real));
        assert_eq!(ours["object"]["kind"], real["object"]["kind"]);
    }
    let (mut ours, mut real) = (ours.last().unwrap().clone(), real.last().unwrap().clone());
    for end in [&mut ours, &mut real] {
        end["object"]["metadata"]["resourceVersion"].take();
    }
    assert_eq!(ours, real, "the end bookmark");
}

#[test]
fn bookmarks_look_like_real_ones() {
    for (kind, real) in [
        (Kind::Service, data!("api-server/api-services-watch.ndjson")),
        (
            Kind::EndpointSlice,
            data!("api-server/api-endpointslices-watch.ndjson"),
        ),
    ] {
        let real = real.lines().last().unwrap();
        assert_eq!(object::bookmark(kind, 324, false), format!("{real}\n"));
    }
}

#[test]
fn a_page_is_like_a_real_page() {
    let real: Value = serde_json::from_str(data!("api-server/api-services-page1.json")).unwrap();
    let (_, ours) = get(&mixed(), SERVICES, "limit=5");
    let names = |list: &Value| -> Vec<Value> {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].clone()).collect()
    };
    assert_eq!(names(&ours), names(&real));
    assert!(ours["metadata"]["continue"].is_string());
}

#[test]
fn watches_follow_what_their_selectors_select() {
    let server = ApiServer::new().unwrap();
    server.apply(&service("web", "a")).unwrap();
    let start = server.version();
    let mut client = watch(
        &server,
        Kind::Service,
        &format!("watch=1&allowWatchBookmarks=true&resourceVersion={start}&labelSelector=app%3Da"),
    );
    for (name, label) in [("web", "a"), ("web", "b"), ("other", "b"), ("web", "a")] {
        server.apply(&service(name, label)).unwrap();
    }
    let deleted = server.delete(Kind::Service, "shop", "web").unwrap();
    server.delete(Kind::Service, "shop", "other").unwrap();
    server.bookmark();
    let events = client.events(|event| event["type"] == "BOOKMARK");
    let told: Vec<_> = events.iter().map(event).collect();
    let expected = [
        pair("MODIFIED", "web"),
        pair("DELETED", "web"),
        pair("ADDED", "web"),
        pair("DELETED", "web"),
        pair("BOOKMARK", ""),
    ];
    assert_eq!(told, expected);
    let version = |event: &Value| event["object"]["metadata"]["resourceVersion"].clone();
    assert_eq!(version(&events[3]), deleted.to_string());
    assert_eq!(version(&events[4]), server.version().to_string());
    assert_eq!(
        events[1]["object"]["metadata"]["labels"]["app"], "a",
        "as it was before"
    );
}

#[test]
fn a_watch_from_before_history_is_told_so() {
    let server = ApiServer::new().unwrap();
    let start = server.apply(&service("web", "a")).unwrap();
    server.apply(&service("web", "b")).unwrap();
    server.forget_history();
    let from = |version: u64| format!("watch=1&resourceVersion={version}");
    let (status, event) = get(&server, SERVICES, &from(start));
    assert_eq!(
        (status, &event["type"], &event["object"]["code"]),
        (200, &json!("ERROR"), &json!(410))
    );
    drop(watch(&server, Kind::Service, &from(start + 1)));
    server
        .wait("the end of a watch", |seen| {
            (seen.open(Kind::Service) == 0).then_some(())
        })
        .unwrap();
}

#[test]
fn a_watch_ends_after_its_time() {
    let server = ApiServer::new().unwrap();
    let mut client = watch(&server, Kind::Service, "watch=1&timeoutSeconds=1");
    assert_eq!(client.rest(), (Vec::new(), true));
}

#[test]
fn transcripts_are_replayed_byte_for_byte() {
    let server = ApiServer::new().unwrap();
    let list = data!("api-server/api-services-list.json");
    let changes = data!("api-server/api-services-watch.ndjson");
    let transcript = Transcript {
        list: Some(list.into()),
        watch: Some(changes.into()),
        streaming_list: None,
    };
    server.replay(Kind::Service, Some(transcript));
    let mut client = Client::ask(&server, SERVICES, SELECTOR);
    client.head().unwrap();
    assert_eq!(client.rest(), (list.into(), true));
    let mut client = watch(&server, Kind::Service, "watch=1&resourceVersion=287");
    server.disturb(None, &Disturbance::End);
    assert_eq!(client.rest(), (changes.into(), true));
    assert_eq!(get(&server, SERVICES, STREAMING).0, 422);
}

#[test]
fn what_is_not_there_and_who_is_not_let_in() {
    let server = mixed();
    assert_eq!(
        get(&server, "/api/v1/nodes/node-a", "").1["metadata"]["name"],
        "node-a"
    );
    assert_eq!(
        get(&server, "/api/v1/nodes/node-x", "").1["reason"],
        "NotFound"
    );
    assert_eq!(get(&server, "/api/v1/pods", ""), (404, Value::Null));
    server.set_served(Kind::ServiceCidr, false);
    let cidrs = "/apis/networking.k8s.io/v1/servicecidrs";
    assert_eq!(get(&server, cidrs, ""), (404, Value::Null));
    server.set_tokens(Some(&["right"]));
    for (token, expected) in [("wrong", 401), ("right", 200)] {
        let header = format!("Authorization: Bearer {token}\r\n");
        let mut client = Client::ask_with(&server, SERVICES, "", &header);
        assert_eq!(client.head().unwrap().0, expected);
        assert_eq!(
            server.sight().requests.last().unwrap().token.as_deref(),
            Some(token)
        );
    }
}

#[test]
fn faults_of_requests_strike_as_told() {
    let server = mixed();
    let once = On::any().times(1);
    server.inject(Fault::Refused(429, Some(7)), once);
    let mut client = Client::ask(&server, SERVICES, "");
    let (status, head) = client.head().unwrap();
    assert!(status == 429 && head.contains("retry-after: 7"), "{head}");
    server.inject(Fault::Disconnected, once);
    let gone = Client::ask(&server, SERVICES, "").head().unwrap_err();
    assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
    server.inject(Fault::Expired, once);
    assert_eq!(get(&server, SERVICES, "").0, 410);
    server.inject(Fault::Garbage("{]".into()), once);
    assert_eq!(get(&server, SERVICES, ""), (200, Value::Null));
    server.inject(Fault::CutMidObject, once);
    let mut client = Client::ask(&server, SERVICES, "");
    client.head().unwrap();
    let (body, whole) = client.rest();
    assert!(!whole && body.len() > 10_000, "{} bytes", body.len());
    server.inject(Fault::Slow(1000, Duration::from_millis(1)), once);
    let mut client = Client::ask(&server, SERVICES, "");
    client.head().unwrap();
    assert_eq!(client.chunk().unwrap().unwrap().len(), 1000);
    assert!(client.rest().1);
    assert_eq!(server.pending_faults(), 0);
    for fault in [Fault::NeverAnswered, Fault::Silent] {
        let answers = matches!(fault, Fault::Silent);
        server.inject(fault, once);
        let mut client = Client::ask(&server, SERVICES, "");
        client
            .0
            .get_ref()
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        assert_eq!(client.head().is_ok(), answers);
        let silent = client.chunk().unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::WouldBlock);
    }
}

#[test]
fn faults_of_watches_strike_as_told() {
    let server = ApiServer::new().unwrap();
    let from_now = || format!("watch=1&resourceVersion={}", server.version());
    let mut client = watch(&server, Kind::Service, &from_now());
    server.apply(&service("web", "a")).unwrap();
    server.disturb(Some(Kind::Service), &Disturbance::Repeat(1));
    server.disturb(Some(Kind::Service), &Disturbance::Send("garbage\n".into()));
    server.disturb(Some(Kind::Node), &Disturbance::End);
    server.disturb(Some(Kind::Service), &Disturbance::Expire);
    let (text, whole) = client.rest();
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(whole && lines.len() == 4, "{text}");
    assert!(
        lines[0] == lines[1] && lines[2] == "garbage" && lines[3].contains("410"),
        "{text}"
    );

    let mut client = watch(&server, Kind::Service, &from_now());
    server.disturb(None, &Disturbance::CutNextEvent);
    server.apply(&service("web", "b")).unwrap();
    let (text, whole) = client.rest();
    assert!(!whole && text.starts_with(b"{\"type\":\"MODIFIED\"") && !text.ends_with(b"\n"));

    let mut client = watch(&server, Kind::Service, &from_now());
    server.disturb(None, &Disturbance::FallSilent);
    server.apply(&service("web", "c")).unwrap();
    client
        .0
        .get_ref()
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    assert_eq!(
        client.chunk().unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
}

#[test]
fn doors_close_stall_and_open_on_the_same_port() {
    let server = ApiServer::new().unwrap();
    let mut client = watch(&server, Kind::Service, "watch=1");
    server.stop().unwrap();
    assert!(!client.rest().1, "dropped");
    let refused = TcpStream::connect(server.address()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    server.stall().unwrap();
    let mut client = Client::ask(&server, "/readyz", "");
    client
        .0
        .get_ref()
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    assert!(client.head().is_err());
    let before = server.version();
    server.restart(Versions::GoOn).unwrap();
    assert_eq!(Client::ask(&server, "/readyz", "").head().unwrap().0, 200);
    assert_eq!(server.version(), before);
    server.apply(&service("web", "a")).unwrap();
    server.restart(Versions::StartOver).unwrap();
    assert!(server.version() < before);
    assert_eq!(
        get(&server, SERVICES, "").1["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn two_servers_serve_one_cluster() {
    let first = mixed();
    let second = first.beside(Options::default()).unwrap();
    second.delete(Kind::Service, "shop", "web").unwrap();
    assert_eq!(get(&first, SERVICES, "").1, get(&second, SERVICES, "").1);
    first.stop().unwrap();
    assert_eq!(get(&second, SERVICES, "").0, 200);
}

#[test]
fn thousands_of_objects_are_listed_in_no_time() {
    let server = ApiServer::new().unwrap();
    let services: Vec<Value> = (0..10_000)
        .map(|number| service(&format!("s{number}"), "a"))
        .collect();
    server.apply(&Value::Array(services)).unwrap();
    let started = std::time::Instant::now();
    let mut client = Client::ask(&server, SERVICES, SELECTOR);
    client.head().unwrap();
    let (body, whole) = client.rest();
    // Nothing timed decides whether a test passes; this is for whoever looks.
    println!("{} bytes in {:?}", body.len(), started.elapsed());
    assert!(whole && body.len() > 5_000_000);
    assert_eq!(server.sight().bytes, u64::try_from(body.len()).unwrap());
}
