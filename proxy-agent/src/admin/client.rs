//! Asks the running agent.

use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use axum::body::Bytes;
use http::{Request, StatusCode, header::HOST};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::{net::UnixStream, time::timeout};

use super::server::{Asked, LOG_LEVEL};

/// How long an answer may take. Comparing a kernel of 100,000 endpoints is well within it.
const LIMIT: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// Nobody listens.
    #[error(
        "no agent answers on {}: {error}; check that one runs with this --pin-dir or \
         --admin-socket, and that you are its user; `state` and `explain` need no agent with --manifests",
        .socket.display()
    )]
    NoAgent {
        /// Where.
        socket: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// The agent does not answer that.
    #[error("{0}")]
    Refused(String),
    /// The agent went away, or is stuck.
    #[error("the answer of the agent on {} is incomplete: {reason}", .socket.display())]
    Broken {
        /// Where.
        socket: PathBuf,
        /// What happened.
        reason: String,
    },
}

/// The agent's answer to `path`, such as `/state`.
pub async fn ask(socket: &Path, path: &str, asked: &Asked) -> Result<String, AskError> {
    send(socket, question(path, asked)).await
}

/// The level of the agent's log; with `level`, which it has from now on.
pub async fn log_level(socket: &Path, level: Option<&str>) -> Result<String, AskError> {
    let request = level.map_or_else(|| Request::get(LOG_LEVEL), |_| Request::put(LOG_LEVEL));
    let body = Bytes::from(level.unwrap_or_default().to_owned());
    let request = request.header(HOST, "agent").body(Full::new(body));
    send(socket, request.map_err(Into::into)).await
}

async fn send(
    socket: &Path,
    request: Result<Request<Full<Bytes>>, Box<dyn Error>>,
) -> Result<String, AskError> {
    let broken = |reason: String| AskError::Broken {
        socket: socket.to_owned(),
        reason,
    };
    let request = request.map_err(|error| broken(error.to_string()))?;
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|error| AskError::NoAgent {
            socket: socket.to_owned(),
            error,
        })?;
    let answer = timeout(LIMIT, exchange(stream, request));
    let (status, body) = answer
        .await
        .map_err(|_| broken(format!("nothing for {} s", LIMIT.as_secs())))?
        .map_err(|error| broken(error.to_string()))?;
    match status {
        StatusCode::OK => Ok(body),
        _ => Err(AskError::Refused(body)),
    }
}

fn question(path: &str, asked: &Asked) -> Result<Request<Full<Bytes>>, Box<dyn Error>> {
    let parameters = serde_urlencoded::to_string(asked)?;
    let request = Request::get(format!("{path}?{parameters}")).header(HOST, "agent");
    Ok(request.body(Full::default())?)
}

async fn exchange(
    stream: UnixStream,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, String), Box<dyn Error>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the exchange; what goes wrong with it shows in the answer.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8(body.into())?))
}
