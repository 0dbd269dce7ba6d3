//! Each page as a client sees it; no sockets.

use std::sync::Mutex;

use axum::{body::Body, http::Request};
use http_body_util::BodyExt as _;
use proxy_model::FigureKind;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::*;
use crate::{
    backend::choice,
    serving::{Health, InForce, Metrics, Readiness, ServiceHealth},
};

/// What a page answers.
#[derive(Debug)]
struct Page {
    status: u16,
    kind: String,
    sniff: String,
    body: String,
}

struct Rig {
    site: Arc<Site>,
    wanted: mpsc::Receiver<FiguresWanted>,
}

fn rig() -> Rig {
    let (figures, wanted) = mpsc::channel(1);
    let site = Site {
        serving: Arc::new(Serving {
            health: Health::new(Duration::ZERO),
            metrics: Metrics::new(
                &choice::fixtures::lacking(&[]),
                &[],
                &crate::serving::Conntrack::new(),
                Vec::new(),
            ),
            readiness: Readiness::new("API server https://a".to_owned()),
            clients: None,
            events: crate::events::Recorder::default(),
            heart: Arc::default(),
            service_health: ServiceHealth::default(),
            configuration: Mutex::new(json!({ "hostnameOverride": "node-a" })),
        }),
        flags: BTreeMap::from(
            [("config", ""), ("v", "2")].map(|(name, value)| (name.to_owned(), value.to_owned())),
        ),
        started: Moment::now(),
        figures,
    };
    Rig {
        site: Arc::new(site),
        wanted,
    }
}

fn figure() -> Figure {
    Figure {
        name: "map_entries",
        kind: FigureKind::Gauge,
        help: "Entries.",
        labels: vec![("map", "SETS".to_owned())],
        value: 5.0,
    }
}

async fn get(pages: Router, path: &str) -> Page {
    ask(pages, Request::get(path).body(Body::empty()).unwrap()).await
}

async fn ask(pages: Router, request: Request<Body>) -> Page {
    let response = pages.oneshot(request).await.unwrap();
    let header = |name| match response.headers().get(name) {
        Some(value) => value.to_str().unwrap().to_owned(),
        None => String::new(),
    };
    let (kind, sniff) = (
        header(header::CONTENT_TYPE),
        header(header::X_CONTENT_TYPE_OPTIONS),
    );
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Page {
        status,
        kind,
        sniff,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}

/// Status and headers that kube-proxy gives on its health port.
fn recorded() -> (u16, String, String) {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/kube-proxy-healthz.txt"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    let header = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap();
        line.to_owned()
    };
    let kind = header("Content-Type: ");
    (
        status.parse().unwrap(),
        kind,
        header("X-Content-Type-Options: "),
    )
}

#[tokio::test]
async fn the_health_port_answers_as_kube_proxy_does_and_counts() {
    let rig = rig();
    let pages = || health(Arc::clone(&rig.site));
    for path in ["/healthz", "/livez"] {
        let page = get(pages(), path).await;
        assert_eq!((page.status, page.kind, page.sniff), recorded());
    }
    rig.site.serving.queued();
    let live = get(pages(), "/livez").await;
    assert_eq!((live.status, live.kind.as_str()), (503, "application/json"));
    assert!(live.body.contains("\"healthy\":false"), "{}", live.body);
    rig.site.serving.health.in_force(InForce::EVERYWHERE);
    rig.site.serving.health.node(false);
    assert_eq!(get(pages(), "/healthz").await.status, 503);
    assert_eq!(get(pages(), "/livez").await.status, 200);
    let text = rig.site.serving.metrics.text().unwrap();
    for line in [
        "kubeproxy_proxy_healthz_total{code=\"200\"} 1",
        "kubeproxy_proxy_healthz_total{code=\"503\"} 1",
        "kubeproxy_proxy_livez_total{code=\"200\"} 2",
        "kubeproxy_proxy_livez_total{code=\"503\"} 1",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}");
    }
}

#[tokio::test]
async fn both_ports_tell_whether_all_that_is_known_is_in_force() {
    let rig = rig();
    let asked = async || {
        let of_health = get(health(Arc::clone(&rig.site)), "/readyz").await;
        let of_metrics = get(metrics(Arc::clone(&rig.site), false), "/readyz").await;
        assert_eq!(of_health.kind, "text/plain; charset=utf-8");
        let both = [of_health, of_metrics].map(|page| (page.status, page.body));
        assert_eq!(both[0], both[1]);
        let [answer, _] = both;
        answer
    };
    let not_yet = |text: &str| (503, text.to_owned());
    assert_eq!(
        asked().await,
        not_yet("API server https://a has not answered yet\n")
    );
    rig.site.serving.source_synced();
    rig.site
        .serving
        .readiness
        .layers(Some("layer nftables is behind: full".to_owned()));
    assert_eq!(asked().await, not_yet("layer nftables is behind: full\n"));
    rig.site.serving.readiness.layers(None);
    // A node that is drained is served all the same.
    rig.site.serving.health.node(false);
    assert_eq!(asked().await, (200, "ok".to_owned()));
}

#[tokio::test]
async fn a_scrape_asks_for_the_backends_figures() {
    let mut rig = rig();
    let pages = metrics(Arc::clone(&rig.site), false);
    // Longer than a scrape waits: whoever is not asked then is not asked at all.
    let owner = timeout(2 * PATIENCE, async {
        let wanted = rig.wanted.recv().await.unwrap();
        wanted.send(vec![("ebpf", vec![figure()])]).unwrap();
    });
    let (page, asked) = tokio::join!(get(pages, "/metrics"), owner);
    assert!(asked.is_ok(), "nobody asked");
    assert_eq!(
        (page.status, page.kind.as_str()),
        (200, metrics::CONTENT_TYPE)
    );
    assert!(
        page.body
            .contains("culvert_ebpf_map_entries{map=\"SETS\"} 5\n"),
        "{}",
        page.body
    );
}

#[tokio::test(start_paused = true)]
async fn a_scrape_waits_for_no_busy_owner() {
    let rig = rig();
    rig.site.serving.heart.idle();
    rig.site.serving.metrics.figures("ebpf", vec![figure()]);
    let started = Instant::now();
    // Two: the first request still lies there, and there is no room for another.
    for _ in 0..2 {
        let page = get(metrics(Arc::clone(&rig.site), false), "/metrics").await;
        assert!(page.body.contains("culvert_build_info{"), "{}", page.body);
        // What was known once, nobody knows now.
        assert!(!page.body.contains("map_entries"), "{}", page.body);
    }
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn the_metrics_port_has_kube_proxys_other_pages() {
    let rig = rig();
    let page = async |path| get(metrics(Arc::clone(&rig.site), false), path).await;
    for path in ["/healthz", "/livez"] {
        let page = page(path).await;
        assert_eq!((page.status, page.body.as_str()), (200, "ok"), "{path}");
        assert_eq!(page.kind, "text/plain; charset=utf-8");
    }
    assert_eq!(page("/proxyMode").await.body, "ebpf");
    assert_eq!(
        page("/configz").await.body,
        r#"{"kubeproxy.config.k8s.io":{"hostnameOverride":"node-a"}}"#
    );
    assert!(
        page("/version")
            .await
            .body
            .contains(env!("CARGO_PKG_VERSION"))
    );
    for path in ["/", "/metric", "/debug/pprof/"] {
        let page = page(path).await;
        assert_eq!(
            (page.status, page.body.as_str()),
            (404, "404 page not found\n"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn what_runs_here_is_told_to_people_and_to_programs_that_name_the_object() {
    let rig = rig();
    let page = async |path: &str, accept: &str| {
        let request = Request::get(path).header(header::ACCEPT, accept);
        let request = request.body(Body::empty()).unwrap();
        ask(metrics(Arc::clone(&rig.site), false), request).await
    };
    let plain = get(metrics(Arc::clone(&rig.site), false), "/statusz").await;
    assert_eq!(
        (plain.status, &*plain.kind),
        (200, "text/plain; charset=utf-8")
    );
    assert!(
        plain.body.starts_with("\nkube-proxy statusz\nWarning: "),
        "{}",
        plain.body
    );
    for part in [
        "\n\nStarted: ",
        "\nUp: 0 hr 00 min 0",
        concat!(
            "\nBinary version: culvert ",
            env!("CARGO_PKG_VERSION"),
            "\n"
        ),
        "\nPaths: /configz /flagz /healthz ",
    ] {
        assert!(plain.body.contains(part), "{part:?}: {}", plain.body);
    }
    let flags = page("/flagz", "text/html, */*;q=0.8").await.body;
    assert!(
        flags.starts_with("\nkube-proxy flags\nWarning: "),
        "{flags}"
    );
    assert!(flags.ends_with("\n\nconfig=\nv=2\n"), "{flags}");

    let of = |kind: &str, media: &str| format!("{media};v=v1beta1;g=config.k8s.io;as={kind}");
    let status = page("/statusz", &of("Statusz", JSON)).await;
    assert_eq!((status.status, &*status.kind), (200, JSON));
    let status: serde_json::Value = serde_json::from_str(&status.body).unwrap();
    assert_eq!(status["apiVersion"], "config.k8s.io/v1beta1");
    assert_eq!(
        (&status["kind"], &status["metadata"]["name"]),
        (&json!("Statusz"), &json!("kube-proxy"))
    );
    assert_eq!(
        (&status["uptimeSeconds"], &status["paths"][0]),
        (&json!(0), &json!("/configz"))
    );
    let flags = page("/flagz", &of("Flagz", "application/yaml")).await;
    assert_eq!((flags.status, &*flags.kind), (200, "application/yaml"));
    let flags: serde_json::Value = serde_saphyr::from_str(&flags.body).unwrap();
    assert_eq!(flags["flags"], json!({ "config": "", "v": "2" }));
    for accept in ["application/json", &of("Flagz", JSON), "text/html"] {
        assert_eq!(page("/statusz", accept).await.status, 406, "{accept}");
    }
    // Each of the pages that it names is there.
    for path in PATHS.iter().filter(|path| **path != "/metrics") {
        assert_ne!(
            get(metrics(Arc::clone(&rig.site), false), path)
                .await
                .status,
            404,
            "{path}"
        );
    }
}

#[tokio::test]
async fn the_log_is_changed_over_http_only_where_that_is_configured_and_by_put() {
    let rig = rig();
    let page = async |method: &str, body: &str, profiling| {
        let request = Request::builder().method(method).uri("/debug/flags/v");
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let page = ask(metrics(Arc::clone(&rig.site), profiling), request).await;
        (page.status, page.body)
    };
    assert_eq!(page("PUT", "4", false).await.0, 404);
    assert_eq!(
        page("GET", "", true).await,
        (406, "unsupported http method\n".to_owned())
    );
    let (status, reason) = page("PUT", "loud", true).await;
    assert_eq!(status, 400);
    assert!(
        reason.starts_with("failed set klog.logging.verbosity loud: \"loud\" is no level"),
        "{reason}"
    );
    assert_eq!(page("PUT", &"4".repeat(5_000), true).await.0, 413);
}
