//! The pages of both ports, each as kube-proxy has it. Reads what others wrote; decides nothing.

#[cfg(test)]
mod tests;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::any,
};
use proxy_model::Figure;
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, oneshot},
    task::spawn_blocking,
    time::timeout,
};

use super::{Moment, Probe, Serving, metrics};
use crate::backend::choice;

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
    /// What is in force of file and flags.
    pub(super) configuration: Value,
    pub(super) figures: mpsc::Sender<FiguresWanted>,
}

/// The pages of the health port.
pub(super) fn health(site: Arc<Site>) -> Router {
    Router::new()
        .route("/healthz", any(healthz))
        .route("/livez", any(livez))
        .fallback(not_found)
        .with_state(site)
}

/// The pages of the metrics port.
pub(super) fn metrics(site: Arc<Site>) -> Router {
    Router::new()
        .route("/metrics", any(scrape))
        // Whether this server answers, as in every component of Kubernetes; how the proxy is, the
        // health port tells.
        .route("/healthz", any(async || text("ok")))
        .route("/livez", any(async || text("ok")))
        .route("/proxyMode", any(proxy_mode))
        .route("/configz", any(configz))
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
    let all = json!({ "kubeproxy.config.k8s.io": site.configuration });
    with_type(JSON, all.to_string())
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
