//! The pages of both ports, each as kube-proxy has it. Reads what others wrote; decides nothing.

#[cfg(test)]
mod tests;
mod zpages;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::any,
};
use proxy_model::Figure;
use serde_json::json;
use tokio::{
    sync::{mpsc, oneshot},
    task::spawn_blocking,
    time::timeout,
};

use super::{Moment, Probe, Serving, metrics};
use crate::{backend::choice, logging};

/// A question for the figures of each layer. Whoever owns the layers answers.
pub type FiguresWanted = oneshot::Sender<Vec<Figures>>;

/// The name of a backend, and what it counts.
pub type Figures = (&'static str, Vec<Figure>);

/// How long a scrape waits for the owner of the backend; after that it leaves the figures out: what
/// they were once is not what they are.
const PATIENCE: Duration = Duration::from_millis(500);

/// What the pages read.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) serving: Arc<Serving>,
    /// What this process was started with.
    pub(super) flags: BTreeMap<String, String>,
    /// When it was.
    pub(super) started: Moment,
    pub(super) figures: mpsc::Sender<FiguresWanted>,
}

/// The pages of the health port.
pub(super) fn health(site: Arc<Site>) -> Router {
    Router::new()
        .route("/healthz", any(healthz))
        .route("/livez", any(livez))
        .route("/readyz", any(readyz))
        .fallback(not_found)
        .with_state(site)
}

/// The pages of the metrics port that everybody may see, sorted.
const PATHS: [&str; 9] = [
    "/configz",
    "/flagz",
    "/healthz",
    "/livez",
    "/metrics",
    "/proxyMode",
    "/readyz",
    "/statusz",
    "/version",
];
/// Bytes of a log level.
const LARGEST_LEVEL: usize = 4096;

/// The pages of the metrics port. With `profiling`, anybody who comes there may change the log.
pub(super) fn metrics(site: Arc<Site>, profiling: bool) -> Router {
    let level = any(set_verbosity).layer(DefaultBodyLimit::max(LARGEST_LEVEL));
    let debug = Router::new().route("/debug/flags/v", level);
    let pages = if profiling { debug } else { Router::new() };
    pages
        .route("/metrics", any(scrape))
        // Whether this server answers, as in every component of Kubernetes; how the proxy is, the
        // health port tells.
        .route("/healthz", any(async || text("ok")))
        .route("/livez", any(async || text("ok")))
        .route("/readyz", any(readyz))
        .route("/proxyMode", any(proxy_mode))
        .route("/configz", any(configz))
        .route("/statusz", any(statusz))
        .route("/flagz", any(flagz))
        .route("/version", any(version))
        .fallback(not_found)
        .with_state(site)
}

async fn healthz(State(site): State<Arc<Site>>) -> Response {
    site.probe(Probe::Healthz)
}

async fn livez(State(site): State<Arc<Site>>) -> Response {
    site.probe(Probe::Livez)
}

/// In words: nobody but people reads why.
async fn readyz(State(site): State<Arc<Site>>) -> Response {
    let serving = &site.serving;
    match serving
        .readiness
        .answer(serving.heart.last(), Instant::now())
    {
        Ok(()) => text("ok"),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, text(reason + "\n")).into_response(),
    }
}

async fn scrape(State(site): State<Arc<Site>>) -> Response {
    site.ask_for_figures().await;
    // The walk over a large state is not for a thread that others wait for.
    let text = spawn_blocking(move || site.serving.metrics.text()).await;
    match text {
        Ok(Ok(text)) => with_type(metrics::CONTENT_TYPE, text),
        Ok(Err(error)) => failed(&error.to_string()),
        Err(error) => failed(&error.to_string()),
    }
}

async fn proxy_mode(State(site): State<Arc<Site>>) -> Response {
    text(choice::name(&site.serving.metrics.layers()))
}

async fn configz(State(site): State<Arc<Site>>) -> Response {
    let all = json!({ "kubeproxy.config.k8s.io": *site.serving.configuration() });
    with_type(JSON, all.to_string())
}

async fn statusz(State(site): State<Arc<Site>>, headers: HeaderMap) -> Response {
    let Moment { instant, wall } = site.started;
    zpages::statusz(&headers, wall, instant.elapsed(), &PATHS)
}

async fn flagz(State(site): State<Arc<Site>>, headers: HeaderMap) -> Response {
    zpages::flagz(&headers, &site.flags)
}

/// In the words of Kubernetes' components; also takes what they do not: levels and directives.
async fn set_verbosity(method: Method, body: String) -> Response {
    if method != Method::PUT {
        let answer = text("unsupported http method\n");
        return (StatusCode::NOT_ACCEPTABLE, answer).into_response();
    }
    let level = body.trim();
    match logging::level::change(level) {
        Ok(()) => text(format!(
            "successfully set klog.logging.verbosity to {level}\n"
        )),
        Err(error) => {
            let answer = text(format!("failed set klog.logging.verbosity {error}\n"));
            (StatusCode::BAD_REQUEST, answer).into_response()
        }
    }
}

async fn version() -> Response {
    let version = json!({ "version": env!("CARGO_PKG_VERSION") });
    with_type(JSON, version.to_string())
}

/// The words of Go's HTTP server, which scripts may look for.
async fn not_found() -> Response {
    (StatusCode::NOT_FOUND, text("404 page not found\n")).into_response()
}

impl Site {
    fn probe(&self, probe: Probe) -> Response {
        let behind = self.serving.clients_behind();
        let answer = self.serving.health.answer(probe, Moment::now(), behind);
        let code = if answer.healthy {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        self.serving.metrics.probed(probe, code.as_u16());
        let body = serde_json::to_string(&answer).expect("times and booleans always serialise");
        (code, with_type(JSON, body)).into_response()
    }

    /// The backend belongs to the run loop, which may be busy with a sync, or hang.
    async fn ask_for_figures(&self) {
        let last = self.serving.heart.last();
        let busy = !last.idle && last.age(Instant::now()) >= PATIENCE;
        let (sender, answer) = oneshot::channel();
        let metrics = &self.serving.metrics;
        if !busy
            && self.figures.try_send(sender).is_ok()
            && let Ok(Ok(all)) = timeout(PATIENCE, answer).await
        {
            for (backend, figures) in all {
                metrics.figures(backend, figures);
            }
        } else {
            for backend in metrics.layers() {
                metrics.figures(backend, Vec::new());
            }
        }
    }
}

pub(super) const JSON: &str = "application/json";

fn text(body: impl IntoResponse) -> Response {
    with_type("text/plain; charset=utf-8", body)
}

fn failed(reason: &str) -> Response {
    let body = format!("collecting the metrics: {reason}\n");
    let page = with_type("text/plain; charset=utf-8", body);
    (StatusCode::INTERNAL_SERVER_ERROR, page).into_response()
}

/// No browser shall take a page for anything else.
pub(super) fn with_type(kind: &'static str, body: impl IntoResponse) -> Response {
    let nosniff = HeaderValue::from_static("nosniff");
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::X_CONTENT_TYPE_OPTIONS, nosniff),
    ];
    (headers, body).into_response()
}
