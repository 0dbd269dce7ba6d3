//! What a health check node port answers, against a real answer of kube-proxy; no sockets.

use std::{num::NonZeroU16, sync::Mutex, time::Duration};

use axum::{
    body::Body as RequestBody,
    http::{Request, header},
};
use http_body_util::BodyExt as _;
use proxy_model::ServiceName;
use tower::ServiceExt as _;

use super::*;
use crate::{
    backend::choice,
    serving::{Health, Metrics, Readiness},
};

const PERIOD: Duration = Duration::from_secs(30);
const PORT: u16 = 31999;

fn lb_local() -> HealthCheckKey {
    HealthCheckKey {
        service: ServiceName::new("shop", "lb-local"),
        family: IpFamily::V4,
    }
}

fn serving(checks: HealthChecks) -> Arc<Serving> {
    let serving = Serving {
        health: Health::new(PERIOD),
        readiness: Readiness::new("a test".to_owned()),
        metrics: Metrics::new(
            &choice::fixtures::lacking(&[]),
            &[],
            &crate::serving::Conntrack::new(),
            Vec::new(),
        ),
        clients: None,
        events: crate::events::Recorder::default(),
        heart: Arc::default(),
        service_health: ServiceHealth::default(),
        configuration: Mutex::default(),
    };
    serving.health_checks(checks);
    Arc::new(serving)
}

fn checks(local_endpoints: usize) -> HealthChecks {
    let check = HealthCheck {
        port: NonZeroU16::new(PORT).unwrap(),
        local_endpoints,
    };
    HealthChecks {
        checks: [(lb_local(), check)].into_iter().collect(),
        external_traffic: true,
        ..HealthChecks::default()
    }
}

/// Status line and headers that are the page's own, sorted; body.
type Answered = (u16, Vec<String>, String);

async fn ask(serving: &Arc<Serving>, port: u16, request: Request<RequestBody>) -> Answered {
    let pages = page(Arc::new(Asked {
        serving: Arc::clone(serving),
        key: lb_local(),
        port,
    }));
    let response = pages.oneshot(request).await.unwrap();
    let mut headers: Vec<_> = response
        .headers()
        .iter()
        .filter(|(name, _)| *name != header::CONTENT_LENGTH)
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    headers.sort_unstable();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, headers, String::from_utf8(body.to_vec()).unwrap())
}

async fn get(serving: &Arc<Serving>) -> Answered {
    let request = Request::get("/").body(RequestBody::empty()).unwrap();
    ask(serving, PORT, request).await
}

/// Status and whether the proxy is said to be well.
async fn told(serving: &Arc<Serving>) -> (u16, bool) {
    let (status, _, body) = get(serving).await;
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    (status, body["serviceProxyHealthy"].as_bool().unwrap())
}

/// The third answer of the file: of a Service without endpoints on the node.
fn recorded() -> Answered {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/kube-proxy-healthz.txt"
    );
    let text = std::fs::read_to_string(path).unwrap().replace("\r\n", "\n");
    let answer = text.split("HTTP/1.1 ").nth(3).unwrap();
    let (head, body) = answer.split_once("\n\n").unwrap();
    let (status, headers) = head.split_once('\n').unwrap();
    // Of the server, not of the page.
    let of_server = ["Date: ", "Content-Length: "];
    let mut headers: Vec<_> = headers
        .lines()
        .filter(|line| !of_server.iter().any(|name| line.starts_with(name)))
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| format!("{}: {value}", name.to_lowercase()))
        .collect();
    headers.sort_unstable();
    let status = status.split(' ').next().unwrap().parse().unwrap();
    (status, headers, body.to_owned())
}

#[tokio::test]
async fn the_answer_is_kube_proxys_to_the_byte() {
    let theirs = recorded();
    assert_eq!(get(&serving(checks(0))).await, theirs);
    let (status, headers, body) = get(&serving(checks(3))).await;
    assert_eq!(status, 200);
    let weight = headers.last().unwrap();
    assert_eq!(weight, "x-load-balancing-endpoint-weight: 3");
    let count = ["\"localEndpoints\": 0", "\"localEndpoints\": 3"];
    assert_eq!(body, theirs.2.replace(count[0], count[1]));
}

#[tokio::test]
async fn every_path_and_method_is_answered_alike() {
    let serving = serving(checks(1));
    let usual = get(&serving).await;
    for (method, path) in [("POST", "/"), ("GET", "/healthz?x=y"), ("PURGE", "/a/b")] {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(RequestBody::empty()).unwrap();
        assert_eq!(ask(&serving, PORT, request).await, usual, "{method} {path}");
    }
}

#[tokio::test]
async fn a_proxy_that_is_late_sends_traffic_elsewhere() {
    let late = |since: Moment| Moment {
        instant: since.instant.checked_sub(PERIOD * 3).unwrap(),
        ..since
    };
    let serving = serving(checks(1));
    assert_eq!(told(&serving).await, (200, true));
    serving.health.queued(late(Moment::now()));
    assert_eq!(told(&serving).await, (503, false));
}

#[tokio::test]
async fn a_node_that_goes_away_still_serves_what_it_has() {
    let serving = serving(checks(1));
    serving.health.node(false);
    assert_eq!(told(&serving).await, (200, true));
}

#[tokio::test]
async fn a_backend_that_serves_nobody_outside_gets_no_traffic() {
    let serving = serving(HealthChecks {
        external_traffic: false,
        ..checks(1)
    });
    assert_eq!(told(&serving).await, (503, false));
}

#[tokio::test]
async fn the_newest_count_is_told_and_none_of_a_service_that_is_gone() {
    let serving = serving(checks(1));
    serving.health_checks(checks(0));
    assert_eq!(told(&serving).await, (503, true));
    serving.health_checks(checks(2));
    assert_eq!(told(&serving).await, (200, true));
    let before = Request::get("/").body(RequestBody::empty()).unwrap();
    assert_eq!(ask(&serving, PORT - 1, before).await.0, 503, "another port");
    serving.health_checks(HealthChecks {
        external_traffic: true,
        ..HealthChecks::default()
    });
    assert_eq!(told(&serving).await, (503, true));
}

#[test]
fn load_balancers_ask_where_node_ports_answer_but_not_on_loopback() {
    let node_ports = ["127.0.0.1", "192.0.2.1", "198.51.100.1", "::1", "fd00::1"];
    let node_ports = node_ports.map(|address| address.parse().unwrap());
    let places = |selection| {
        let places = places(&node_ports, &selection);
        places.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let cidrs = |texts: &[&str]| {
        let cidrs = texts.iter().map(|text| text.parse().unwrap());
        NodePortSelection::Cidrs(cidrs.collect())
    };
    assert_eq!(places(NodePortSelection::All), ["0.0.0.0", "::"]);
    let each = ["192.0.2.1", "198.51.100.1", "fd00::1"];
    assert_eq!(places(NodePortSelection::Primary), each);
    // What the ranges hold was selected before; here only their being everything matters.
    let ranges = cidrs(&["192.0.2.0/24", "198.51.100.0/24", "127.0.0.0/8", "::/0"]);
    assert_eq!(places(ranges), ["::", "192.0.2.1", "198.51.100.1"]);
    assert_eq!(places(cidrs(&["fd00::/8"])), ["0.0.0.0", "fd00::1"]);
}

#[test]
fn a_backend_that_lacks_external_traffic_serves_none() {
    let of = |lacking| {
        HealthChecks::of(&NodeState::default(), &NodePortSelection::All, lacking).external_traffic
    };
    assert!(of(&[Capability::Sctp]));
    assert!(!of(&Capability::ALL));
}
