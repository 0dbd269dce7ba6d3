//! One request, one answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::{Method, Response, StatusCode, header};
use tokio::sync::mpsc;

use super::{
    body::{Body, Writer, whole},
    cluster::Cluster,
    events::{self, Events},
    fault::{Armed, Fault},
    kind::Kind,
    list::{get, list},
    query::{Query, Verb},
    seen::{Request, Seen},
    status::Status,
    transcript::Transcript,
    watch::{Order, Watch, open},
};

/// What answers need.
#[derive(Debug)]
pub(super) struct Responder {
    pub(super) cluster: Arc<Cluster>,
    pub(super) seen: Arc<Seen>,
    state: Mutex<State>,
}

/// What can be changed while the server runs.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) faults: Armed,
    pub(super) watches: Vec<(Kind, mpsc::UnboundedSender<Order>)>,
    pub(super) events: Events,
    pub(super) transcripts: BTreeMap<Kind, Transcript>,
    /// Who is let in; `None` for everybody.
    pub(super) tokens: Option<BTreeSet<String>>,
}

/// Who is at the other end.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    connection: u64,
    certificate: Option<String>,
}

/// Counts a connection while it is open.
#[derive(Debug)]
pub(super) struct Connected {
    seen: Arc<Seen>,
    number: u64,
}

impl Connected {
    pub(super) fn peer(&self, certificate: Option<String>) -> Peer {
        Peer {
            connection: self.number,
            certificate,
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.seen.note(|sight| sight.open_connections -= 1);
    }
}

impl Responder {
    pub(super) fn new(cluster: Arc<Cluster>) -> Self {
        Self {
            cluster,
            seen: Seen::new(),
            state: Mutex::default(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // What is in it is complete after each statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn connected(&self) -> Connected {
        let number = self.seen.note(|sight| {
            sight.connections += 1;
            sight.open_connections += 1;
            sight.connections
        });
        let seen = Arc::clone(&self.seen);
        Connected { seen, number }
    }

    fn lets_in(&self, token: Option<&String>, peer: &Peer) -> bool {
        let state = self.state();
        peer.certificate.is_some()
            || state
                .tokens
                .as_ref()
                .is_none_or(|tokens| token.is_some_and(|token| tokens.contains(token)))
    }
}

/// Answers `request`. An error closes the connection without an answer.
pub(super) async fn answer<B>(
    responder: Arc<Responder>,
    peer: Peer,
    request: hyper::Request<B>,
) -> io::Result<Response<Body>>
where
    B: hyper::body::Body,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let (request, body) = request.into_parts();
    let request = hyper::Request::from_parts(request, ());
    let path = request.uri().path();
    let text = request.uri().query().unwrap_or_default();
    let query = Query::parse(path, text);
    let token = request.headers().get(header::AUTHORIZATION);
    let token = token.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let seen = Request {
        at: Instant::now(),
        method: request.method().to_string(),
        path: path.to_owned(),
        query: text.to_owned(),
        asks: query.as_ref().map(|query| (query.verb, query.kind)),
        token: token.map(str::to_owned),
        certificate: peer.certificate.clone(),
        connection: peer.connection,
        status: 0,
    };
    let allowed = responder.lets_in(seen.token.as_ref(), &peer);
    let number = responder.seen.note(|sight| {
        sight.requests.push(seen);
        sight.requests.len() - 1
    });
    let result = match query {
        _ if let Some((namespace, name)) = events::place(path) => {
            if allowed {
                let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
                Ok(written(
                    &responder,
                    request.method(),
                    namespace,
                    name,
                    &body,
                ))
            } else {
                Ok(refusal(&Status::of(401)))
            }
        }
        _ if request.method() != Method::GET => Ok(plain(405, "method not allowed\n")),
        _ if matches!(path, "/healthz" | "/livez" | "/readyz") => Ok(plain(200, "ok")),
        _ if !allowed => Ok(refusal(&Status::of(401))),
        Some(query) if responder.cluster.serves(query.kind) => objects(&responder, query).await,
        // A kind that the server does not know is refused by its router, not by its API.
        _ => Ok(plain(404, "404 page not found\n")),
    };
    if let Ok(response) = &result {
        let status = response.status().as_u16();
        responder
            .seen
            .note(|sight| sight.requests[number].status = status);
    }
    result
}

/// What becomes of an event.
fn written(
    responder: &Responder,
    method: &Method,
    namespace: &str,
    name: Option<&str>,
    body: &[u8],
) -> Response<Body> {
    let events = &mut responder.state().events;
    let (code, result) = match (method, name) {
        (&Method::POST, None) => (201, events.create(namespace, body)),
        (&Method::PATCH, Some(name)) => (200, events.patch(name, body)),
        _ => return plain(405, "method not allowed\n"),
    };
    match result {
        Ok(event) => respond(code, "application/json", whole(event.to_string().into())),
        Err(status) => refusal(&status),
    }
}

async fn objects(responder: &Arc<Responder>, query: Query) -> io::Result<Response<Body>> {
    let fault = responder.state().faults.take(&query);
    match fault {
        Some(Fault::Disconnected) => return Err(io::ErrorKind::ConnectionAborted.into()),
        Some(Fault::NeverAnswered) => pending().await,
        Some(Fault::Refused(code, seconds)) => {
            return Ok(refusal(&Status::of(code).retry_after(seconds)));
        }
        _ => {}
    }
    let result = query.check().and_then(|()| match query.verb {
        Verb::Watch | Verb::StreamingList => watch(responder, &query, fault),
        Verb::List | Verb::Get => at_once(responder, &query, fault),
    });
    Ok(result.unwrap_or_else(|status| refusal(&status)))
}

fn at_once(
    responder: &Arc<Responder>,
    query: &Query,
    fault: Option<Fault>,
) -> Result<Response<Body>, Status> {
    let transcript = responder.state().transcripts.get(&query.kind).cloned();
    let page = responder.cluster.page();
    let mut bytes = match (query.verb, transcript.and_then(|it| it.list)) {
        (Verb::List, Some(list)) => list,
        (Verb::Get, _) => responder.cluster.read(|store| get(store, query))?,
        _ => responder.cluster.read(|store| list(store, query, page))?,
    };
    let slow = match fault {
        Some(Fault::Slow(size, pause)) => Some((size, pause)),
        _ => None,
    };
    let (writer, body) = Writer::new(slow, Arc::clone(&responder.seen));
    let cut = match fault {
        Some(Fault::Expired) => return Err(Status::of(410)),
        Some(Fault::Silent) => {
            tokio::spawn(async move { writer.closed().await });
            return Ok(json(body));
        }
        Some(Fault::Garbage(garbage)) => {
            bytes = garbage;
            false
        }
        Some(Fault::CutMidObject) => {
            // Past the end of the last object there are `]}` and the end of the line.
            bytes.truncate(bytes.len().saturating_sub(20));
            true
        }
        _ => false,
    };
    tokio::spawn(async move {
        if writer.send(bytes).await.is_ok() && cut {
            writer.cut().await;
        }
    });
    Ok(json(body))
}

fn watch(
    responder: &Arc<Responder>,
    query: &Query,
    fault: Option<Fault>,
) -> Result<Response<Body>, Status> {
    let selector = query.selector()?;
    let (sender, orders) = mpsc::unbounded_channel();
    let transcript = responder.state().transcripts.get(&query.kind).cloned();
    // Orders are heard from here on, so that none is lost between the first events and the
    // following ones.
    let opened = responder.cluster.read(|store| {
        responder.state().watches.push((query.kind, sender));
        match transcript {
            Some(transcript) => transcript.open(query.verb),
            None => open(store, query, &selector),
        }
    });
    let mut opening = match opened {
        // The watch begins, and its first event says that it cannot.
        Err(status) if status.code == 410 => return Ok(json(whole(status.to_event()))),
        opened => opened?,
    };
    let slow = match fault {
        Some(Fault::Slow(size, pause)) => Some((size, pause)),
        _ => None,
    };
    let (writer, body) = Writer::new(slow, Arc::clone(&responder.seen));
    let mut watch = Watch {
        kind: query.kind,
        selector,
        bookmarks: query.flag("allowWatchBookmarks"),
        timeout: query.number("timeoutSeconds")?.map(Duration::from_secs),
        cut: false,
        orders,
        sent: Vec::new(),
    };
    match fault {
        Some(Fault::Expired) => return Ok(json(whole(Status::of(410).to_event()))),
        Some(Fault::Silent) => {
            tokio::spawn(async move { writer.closed().await });
            return Ok(json(body));
        }
        Some(Fault::Garbage(garbage)) => opening.first.insert(0, garbage),
        Some(Fault::CutMidObject) => watch.cut = true,
        _ => {}
    }
    let (cluster, seen) = (Arc::clone(&responder.cluster), Arc::clone(&responder.seen));
    tokio::spawn(watch.run(opening, writer, cluster, seen));
    Ok(json(body))
}

fn json(body: Body) -> Response<Body> {
    respond(200, "application/json", body)
}

fn refusal(status: &Status) -> Response<Body> {
    let mut response = respond(status.code, "application/json", whole(status.to_bytes()));
    if let Some(seconds) = status.retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn plain(code: u16, text: &'static str) -> Response<Body> {
    let body = whole(Bytes::from_static(text.as_bytes()));
    respond(code, "text/plain; charset=utf-8", body)
}

fn respond(code: u16, content: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::IM_A_TEAPOT);
    let headers = response.headers_mut();
    let mut set = |name, value| headers.insert(name, header::HeaderValue::from_static(value));
    set(header::CONTENT_TYPE, content);
    set(header::CACHE_CONTROL, "no-cache, private");
    response
}
