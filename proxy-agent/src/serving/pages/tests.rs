//! Each page as a client sees it; no sockets.

use axum::{body::Body, http::Request};
use http_body_util::BodyExt as _;
use proxy_model::FigureKind;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::*;
use crate::{
    backend::choice,
    serving::{Health, InForce, Metrics, ServiceHealth},
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
            clients: None,
            heart: Arc::default(),
            service_health: ServiceHealth::default(),
        }),
        configuration: json!({ "hostnameOverride": "node-a" }),
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
    let request = Request::get(path).body(Body::empty()).unwrap();
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
async fn a_scrape_asks_for_the_backends_figures() {
    let mut rig = rig();
    let pages = metrics(Arc::clone(&rig.site));
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
        let page = get(metrics(Arc::clone(&rig.site)), "/metrics").await;
        assert!(page.body.contains("culvert_build_info{"), "{}", page.body);
        // What was known once, nobody knows now.
        assert!(!page.body.contains("map_entries"), "{}", page.body);
    }
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn the_metrics_port_has_kube_proxys_other_pages() {
    let rig = rig();
    let page = async |path| get(metrics(Arc::clone(&rig.site)), path).await;
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
