//! Answers on the socket. Knows how a question looks on the wire; the run loop answers it.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use axum::{
    Router,
    extract::{Query as Parameters, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use proxy_api::server::{
    SOCKET_MODE,
    socket::{self, SocketError, SocketFile},
};
use serde::{Deserialize, Serialize};
use tokio::{
    net::{UnixListener, UnixStream},
    select,
    sync::{mpsc, oneshot},
    time::sleep,
};

use super::{Query, Snapshot};
use crate::{
    logging::level as log_level,
    report::{
        self, Form,
        explain::{self, Arrival},
    },
};

/// Between two attempts to open the socket again.
const AGAIN: Duration = Duration::from_secs(5);

/// The socket; removed when dropped, unless another agent's has taken its place.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    file: SocketFile,
}

impl Socket {
    /// Opens `path` for the agent's user alone. What is there is of an agent that is gone: the
    /// caller holds the lock of the pin directory that the path stands for.
    pub fn open(path: &Path) -> Result<Self, SocketError> {
        let (listener, file) = socket::listen(path, SOCKET_MODE, 0o700)?;
        Ok(Self { listener, file })
    }

    /// The same where no lock tells whether what is there is of an agent that is gone: refuses to
    /// take the place of one that answers.
    pub async fn open_unless_served(path: &Path) -> Result<Self, SocketError> {
        if socket::is_served(path).await {
            return Err(SocketError {
                what: "will not replace the agent that answers on",
                path: path.to_owned(),
                error: io::Error::new(
                    io::ErrorKind::AddrInUse,
                    "stop it first, or give another socket with --admin-socket",
                ),
            });
        }
        Self::open(path)
    }

    /// Answers on `first`, and on another one at `path` whenever there is none, or somebody removed
    /// its file.
    pub async fn serve_for_ever(first: Option<Self>, path: PathBuf, queries: Queries) {
        let mut next = first;
        loop {
            let socket = match next.take() {
                Some(socket) => socket,
                None => Self::open_at_last(&path).await,
            };
            let gone = socket.file.gone();
            select! {
                () = socket.serve(queries.clone()) => {}
                () = gone => tracing::warn!(
                    path = %path.display(),
                    text = "another process removed its file; it is opened again",
                    "admin socket lost"
                ),
            }
        }
    }

    /// Quietly: what keeps it from being opened was told once, and may last.
    async fn open_at_last(path: &Path) -> Self {
        loop {
            if let Ok(socket) = Self::open_unless_served(path).await {
                tracing::info!(path = %path.display(), "admin socket opened");
                return socket;
            }
            sleep(AGAIN).await;
        }
    }

    /// Answers until `queries` has no receiver and the task is dropped.
    pub async fn serve(self, queries: mpsc::Sender<Query>) {
        let listener = Listener(self);
        let router = router(queries);
        // `axum::serve` never ends with an error; it waits out failing accepts by itself.
        let Ok(()) = axum::serve(listener, router).await else {
            return;
        };
    }
}

/// Keeps the socket's file for as long as it is served.
struct Listener(Socket);

impl axum::serve::Listener for Listener {
    type Io = UnixStream;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        axum::serve::Listener::accept(&mut self.0.listener).await
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.listener.local_addr()
    }
}

/// What a question says beside its path; the client writes the same structure.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Asked {
    /// Form of the answer.
    #[serde(default)]
    pub output: Form,
    /// Refuse the answer if the agent is for another node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Source of the packet to explain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Destination: `IP:PORT/PROTO`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Interface it comes in by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Where it meets the proxy.
    #[serde(default)]
    pub path: Arrival,
}

/// Where the level of the log is read and changed.
pub const LOG_LEVEL: &str = "/log-level";

type Queries = mpsc::Sender<Query>;

fn router(queries: Queries) -> Router {
    Router::new()
        .route("/state", get(state))
        .route("/kernel", get(kernel))
        .route("/explain", get(explanation))
        .route(LOG_LEVEL, get(level).put(change_log_level))
        .with_state(queries)
}

/// An answer that is none: status and one line of text.
type Refused = (StatusCode, String);

async fn state(
    State(queries): State<Queries>,
    Parameters(asked): Parameters<Asked>,
) -> Result<Response, Refused> {
    let snapshot = snapshot(&queries, &asked).await?;
    Ok(match asked.output {
        Form::Json => json(report::agent_to_json(&snapshot.state, &snapshot.agent)),
        Form::Text => report::agent_to_text(&snapshot.state, &snapshot.agent).into_response(),
    })
}

async fn kernel(
    State(queries): State<Queries>,
    Parameters(asked): Parameters<Asked>,
) -> Result<Response, Refused> {
    let snapshot = snapshot(&queries, &asked).await?;
    let compared = ask(&queries, Query::Differences).await?;
    if let Some(reason) = report::nothing_known(&compared) {
        return Err((StatusCode::SERVICE_UNAVAILABLE, reason));
    }
    Ok(match asked.output {
        Form::Json => json(report::kernel_to_json(&snapshot.agent, &compared)),
        Form::Text => report::kernel_to_text(&snapshot.agent, &compared).into_response(),
    })
}

async fn explanation(
    State(queries): State<Queries>,
    Parameters(asked): Parameters<Asked>,
) -> Result<Response, Refused> {
    let from = asked.from.as_deref().unwrap_or_default();
    let to = asked.to.as_deref().unwrap_or_default();
    let packet = explain::packet(from, to, asked.interface.as_deref())
        .map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
    snapshot(&queries, &asked).await?;
    let arrival = asked.path.into();
    let explanation = ask(&queries, |answer| Query::Explain {
        packet,
        arrival,
        answer,
    })
    .await?;
    Ok(match asked.output {
        Form::Json => json(explanation.to_json()),
        Form::Text => explanation.story.into_response(),
    })
}

async fn level() -> Result<String, Refused> {
    let unknown = || {
        let reason = "the log of this process was set up by another program".to_owned();
        (StatusCode::NOT_FOUND, reason)
    };
    log_level::now()
        .map(|level| level + "\n")
        .ok_or_else(unknown)
}

/// The whole body is the level.
async fn change_log_level(wanted: String) -> Result<String, Refused> {
    match log_level::change(&wanted) {
        Ok(()) => level().await,
        Err(error) => Err((StatusCode::BAD_REQUEST, error.to_string())),
    }
}

/// The state, unless it is another node's or there is none yet.
async fn snapshot(queries: &Queries, asked: &Asked) -> Result<Snapshot, Refused> {
    let snapshot = ask(queries, Query::State).await?;
    let node = &snapshot.state.node.name;
    if let Some(other) = asked.node.as_deref().filter(|other| *other != &**node) {
        let reason = format!("the agent that runs here serves node {node}, not {other}");
        return Err((StatusCode::CONFLICT, reason));
    }
    if !snapshot.agent.synced {
        let reason = "the agent has no state yet: it waits for the cluster's objects; see its log";
        return Err((StatusCode::SERVICE_UNAVAILABLE, reason.to_owned()));
    }
    Ok(snapshot)
}

async fn ask<T>(
    queries: &Queries,
    query: impl FnOnce(oneshot::Sender<T>) -> Query,
) -> Result<T, Refused> {
    let stopping = || {
        let reason = "the agent is stopping".to_owned();
        (StatusCode::SERVICE_UNAVAILABLE, reason)
    };
    let (answer, answered) = oneshot::channel();
    queries.send(query(answer)).await.map_err(|_| stopping())?;
    answered.await.map_err(|_| stopping())
}

fn json(text: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}
