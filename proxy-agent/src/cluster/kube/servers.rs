//! The API servers: which one is asked, with which credentials, and what comes back, up to the
//! bytes of an answer. Knows no kinds of objects.

#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use ::kube::{
    Client,
    client::{Body, ConfigExt},
};
use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use tokio::time::timeout;
use tower::{BoxError, ServiceBuilder};

use super::{
    Timing,
    access::{Access, ConnectError, told},
    connector,
    counters::Counters,
    failure::{Blame, Failure},
    token::TokenFile,
};
use crate::cluster::brief::brief;

/// So often in a row a server may fail before another one is asked.
const STRIKES: u32 = 3;
/// An answer that is no list and no watch is a `Status`, which is short.
const LARGEST_STATUS: usize = 64 << 10;

/// All servers, of which one is asked.
pub(super) struct Servers {
    /// At least one.
    all: Vec<Server>,
    /// How often another server was turned to since one last worked.
    turns: AtomicUsize,
    token: Option<TokenFile>,
    timing: Timing,
    /// Also holds which one is asked.
    counters: Arc<Counters>,
}

struct Server {
    url: Uri,
    client: Client,
    /// How often in a row it failed.
    strikes: AtomicU32,
}

/// A failure, and the server that it came from.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) server: usize,
    pub(super) failure: Failure,
}

impl Failed {
    /// Makes failures of the server with this number.
    pub(super) fn at(server: usize) -> impl Fn(Failure) -> Self + Copy {
        move |failure| Self { server, failure }
    }
}

impl Servers {
    pub(super) fn new(
        access: Access,
        timing: Timing,
        counters: Arc<Counters>,
    ) -> Result<Self, ConnectError> {
        access.warn();
        let Access {
            mut config,
            servers,
            token_file,
        } = access;
        let token = token_file
            .map(|path| {
                let opened = TokenFile::open(path.clone(), timing.token_age);
                opened.map_err(|reason| ConnectError::Token { path, reason })
            })
            .transpose()?;
        let servers = servers
            .into_iter()
            .map(|url| {
                config.cluster_url = url.clone();
                Ok(Server {
                    client: client(&config, &timing)?,
                    url,
                    strikes: AtomicU32::new(0),
                })
            })
            .collect::<Result<_, _>>()
            .map_err(|error: ::kube::Error| ConnectError::Credentials {
                reason: told(&error),
            })?;
        Ok(Self {
            all: servers,
            turns: AtomicUsize::new(0),
            token,
            timing,
            counters,
        })
    }

    pub(super) fn urls(&self) -> impl Iterator<Item = &Uri> {
        self.all.iter().map(|server| &server.url)
    }

    pub(super) fn url(&self, server: usize) -> &Uri {
        &self.all[server].url
    }

    /// Which one is asked.
    pub(super) fn current(&self) -> usize {
        self.counters.server.load(Relaxed)
    }

    /// Asks for `path`, with its query.
    pub(super) async fn get(&self, path: &Uri) -> Result<Reply, Failed> {
        let server = self.current();
        let failed = Failed::at(server);
        let asked = self.ask(server, &|| get(path)).await;
        let response = asked.map_err(failed)?;
        if response.status().is_success() {
            return Ok(Reply {
                server,
                body: response.into_body(),
                pending: None,
                counters: Arc::clone(&self.counters),
            });
        }
        Err(failed(self.refusal(response).await))
    }

    /// Writes `object`: all of a new one, or by PATCH what changes of one. How that goes has no say in
    /// which server is asked: what is read there matters more.
    pub(super) async fn write(
        &self,
        method: &Method,
        path: &Uri,
        object: &Value,
    ) -> Result<(), Failure> {
        let request = || {
            let content = if *method == Method::PATCH {
                "application/merge-patch+json"
            } else {
                "application/json"
            };
            let mut request = request(method, path, object.to_string().into_bytes().into());
            let content = HeaderValue::from_static(content);
            request.headers_mut().insert(header::CONTENT_TYPE, content);
            request
        };
        let response = self.ask(self.current(), &request).await?;
        if response.status().is_success() {
            // Answered with the object, which need not be read; its connection is not used again.
            return Ok(());
        }
        Err(self.refusal(response).await)
    }

    /// Sends a request, and again where the token was refused and has been replaced.
    async fn ask(
        &self,
        server: usize,
        request: &(dyn Fn() -> Request<Body> + Sync),
    ) -> Result<Response<Body>, Failure> {
        let authorization = self.token.as_ref().map(TokenFile::header);
        let response = self.send(server, request(), authorization.as_ref()).await?;
        if response.status() == StatusCode::UNAUTHORIZED
            && let (Some(token), Some(refused)) = (&self.token, &authorization)
            // It has been replaced since it was read, perhaps.
            && let Some(header) = token.instead_of(refused)
        {
            return self.send(server, request(), Some(&header)).await;
        }
        Ok(response)
    }

    async fn send(
        &self,
        server: usize,
        mut request: Request<Body>,
        authorization: Option<&HeaderValue>,
    ) -> Result<Response<Body>, Failure> {
        if let Some(authorization) = authorization {
            request
                .headers_mut()
                .insert(header::AUTHORIZATION, authorization.clone());
        }
        let limit = self.timing.answer;
        match timeout(limit, self.all[server].client.send(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(Failure::Unreachable(brief(&told(&error)))),
            Err(_) => Err(Failure::Unanswered(limit)),
        }
    }

    /// What an answer means that is not a good one.
    async fn refusal(&self, response: Response<Body>) -> Failure {
        let (head, body) = response.into_parts();
        let retry_after = head.headers.get(header::RETRY_AFTER);
        let retry_after = retry_after
            .and_then(|value| value.to_str().ok()?.trim().parse().ok())
            .map(Duration::from_secs);
        let body = Limited::new(body, LARGEST_STATUS).collect();
        let body = match timeout(self.timing.answer, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            _ => Bytes::new(),
        };
        Failure::from_answer(head.status.as_u16(), &body, retry_after)
    }

    /// Takes note that a server did all it was asked for: an answer that begins well may still
    /// end badly.
    pub(super) fn worked(&self, server: usize) {
        self.all[server].strikes.store(0, Relaxed);
        self.turns.store(0, Relaxed);
    }

    /// Whether there is a server that was not asked since one last worked.
    fn untried(&self) -> bool {
        self.turns.load(Relaxed) < self.all.len()
    }

    /// Takes note of a failure, and turns to another server if it is time to. Returns whether
    /// another server can be asked at once: each is, one time; when none works, all of them are
    /// left alone for longer and longer.
    pub(super) fn failed(&self, failed: &Failed) -> bool {
        let Failed { server, failure } = failed;
        let current = self.current();
        if *server != current {
            // Somebody else has turned away from it already.
            return self.untried();
        }
        let strikes = &self.all[*server].strikes;
        let give_up = match failure.blame() {
            Blame::Server => true,
            Blame::Perhaps => strikes.fetch_add(1, Relaxed) + 1 >= STRIKES,
            Blame::None => false,
        };
        let next = (server + 1) % self.all.len();
        if !give_up || next == *server {
            return false;
        }
        strikes.store(0, Relaxed);
        let exchanged = self
            .counters
            .server
            .compare_exchange(*server, next, Relaxed, Relaxed);
        if exchanged.is_ok() {
            self.counters.failovers.fetch_add(1, Relaxed);
            let (from, to) = (self.url(*server), self.url(next));
            // Said for one round: as long as none works, there is nothing new to say.
            if self.turns.fetch_add(1, Relaxed) < self.all.len() {
                tracing::warn!(%from, %to, reason = %failure, "turning to another API server");
            }
        }
        self.untried()
    }
}

fn get(path: &Uri) -> Request<Body> {
    request(&Method::GET, path, Body::empty())
}

fn request(method: &Method, path: &Uri, body: Body) -> Request<Body> {
    let agent = concat!("culvert/", env!("CARGO_PKG_VERSION"));
    Request::builder()
        .method(method)
        .uri(path.clone())
        .header(header::ACCEPT, "application/json")
        .header(header::USER_AGENT, agent)
        .body(body)
        .expect("a URI and valid headers make a request")
}

/// Connections to the server in `config`.
fn client(config: &::kube::Config, timing: &Timing) -> Result<Client, ::kube::Error> {
    let connections = connector::client(config, timing.connect)?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(connections);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// A good answer, of which the head has come.
pub(super) struct Reply {
    /// Where it comes from.
    pub(super) server: usize,
    body: Body,
    /// Came, and was not asked for yet.
    pending: Option<Result<Option<Bytes>, Failure>>,
    counters: Arc<Counters>,
}

impl Reply {
    /// The next piece; `None` at the end. A failure if none comes within `limit`.
    pub(super) async fn next(&mut self, limit: Duration) -> Result<Option<Bytes>, Failure> {
        if let Some(pending) = self.pending.take() {
            return pending;
        }
        match timeout(limit, self.piece()).await {
            Ok(piece) => piece,
            Err(_) => Err(Failure::Silent(limit)),
        }
    }

    /// The next piece if it has come already. An end, good or bad, is left for [`Self::next`].
    pub(super) fn ready(&mut self) -> Option<Bytes> {
        match self.piece().now_or_never()? {
            Ok(Some(piece)) => Some(piece),
            end => {
                self.pending = Some(end);
                None
            }
        }
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(Failure::BrokeOff(brief(&told(&error)))),
                Some(Ok(frame)) => {
                    // What is no data is a trailer.
                    if let Ok(piece) = frame.into_data() {
                        let length = u64::try_from(piece.len()).expect("a length fits into u64");
                        self.counters.bytes_read.fetch_add(length, Relaxed);
                        return Ok(Some(piece));
                    }
                }
            }
        }
    }
}
