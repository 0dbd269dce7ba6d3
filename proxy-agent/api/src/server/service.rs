//! The calls of the API: who may, what is asked, and who answers.

use std::{result::Result as StdResult, time::Duration};

use proxy_model::{ServiceName, ServicePortKey};
use tokio::sync::watch;
use tonic::{Request, Response, Status, async_trait};

use super::{
    answers::{self, Answers},
    caller::{Caller, Identity},
    clients::{MOST_STREAMS, Reported, SHARE, Stream},
    feed::{self, Part, Step},
    publisher::Publisher,
};
use crate::{
    ClientName, DecodeError, convert,
    report::{MOST_FAILURES, shortened},
    wire::{self, node_api_server::NodeApi},
};

/// Bytes of a namespace, the name of a Service, or that of a port: the API server takes no others.
const LONGEST_KEY: usize = 253;

type Result<T> = StdResult<Response<T>, Status>;

/// Answers calls out of a [`Publisher`].
#[derive(Debug)]
pub struct Service {
    publisher: Publisher,
    /// Closed once nobody is served any more.
    open: watch::Receiver<()>,
}

impl Service {
    pub fn new(publisher: Publisher, open: watch::Receiver<()>) -> Self {
        Self { publisher, open }
    }

    /// Runs `feed` until it ends, or until nobody is served any more.
    fn spawn(&self, feed: impl Future<Output = ()> + Send + 'static) {
        let mut open = self.open.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = feed => {}
                _ = open.changed() => {}
            }
        });
    }

    /// Lets a client begin a call. Returns what it asks, and its stream.
    async fn enter<T>(
        &self,
        request: Request<T>,
        client: impl FnOnce(&mut T) -> Option<wire::Client>,
    ) -> StdResult<(T, Stream), Status> {
        let caller = Caller::of(&request)?;
        let (metadata, _, mut request) = request.into_parts();
        let (name, client) = named(client(&mut request))?;
        let Identity { name, known } = caller.identify(name, &metadata).await?;
        let lacks = convert::reports::capabilities(&client);
        let stream = self
            .publisher
            .registry()
            .enter(caller.peer, &name, known, lacks);
        let stream = stream.ok_or_else(|| {
            Status::resource_exhausted(format!(
                "{MOST_STREAMS} calls are already open, or {SHARE} of this client's user or host, \
                 and no more are served; look for a client that opens calls and never ends them"
            ))
        })?;
        caller.is_served(known);
        Ok((request, stream))
    }
}

#[async_trait]
impl NodeApi for Service {
    type WatchStream = Answers<Step, wire::Operation>;
    type NextStream = Answers<Part, wire::NextPart>;

    async fn watch(&self, request: Request<wire::WatchRequest>) -> Result<Self::WatchStream> {
        let (request, stream) = self.enter(request, |one| one.client.take()).await?;
        let (sender, answers) = answers::channel();
        let resume = request.resume.map(Into::into);
        self.spawn(feed::watch(self.publisher.clone(), stream, resume, sender));
        Ok(Response::new(answers))
    }

    async fn next(&self, request: Request<wire::NextRequest>) -> Result<Self::NextStream> {
        let (request, stream) = self.enter(request, |one| one.client.take()).await?;
        let (sender, answers) = answers::channel();
        let seen = request.seen.map(Into::into);
        self.spawn(feed::next(self.publisher.clone(), stream, seen, sender));
        Ok(Response::new(answers))
    }

    async fn report(&self, request: Request<wire::ReportRequest>) -> Result<wire::ReportResponse> {
        let caller = Caller::of(&request)?;
        let (metadata, _, request) = request.into_parts();
        let (said, client) = named(request.client)?;
        let Identity { name, known } = caller.identify(said, &metadata).await?;
        if !known {
            return Err(caller.unheard(&metadata));
        }
        caller.is_served(known);
        // That of another brain is none of ours: it will be told a reset, and reports again.
        let revision = |token: wire::Token| self.publisher.revision_of(token.into()).unwrap_or(0);
        let applied = request.applied.map(revision);
        let mut all = request.failures;
        let too_many = all.len().saturating_sub(MOST_FAILURES);
        all.truncate(MOST_FAILURES);
        let mut failures = convert::reports::failures(all).map_err(|error| refused(&error))?;
        for one in &mut failures {
            bounded(&one.key).map_err(|error| refused(&error))?;
            one.reason = shortened(&one.reason);
        }
        let more = u32::try_from(too_many).unwrap_or(u32::MAX);
        let clients = self.publisher.registry();
        let measured = clients.report(Reported {
            name: name.clone(),
            lacks: convert::reports::capabilities(&client),
            applied,
            failures,
            more_failures: request.more_failures.saturating_add(more),
            error: Some(shortened(&request.error)).filter(|error| !error.is_empty()),
        });
        if let (Some(measured), Some(applied)) = (measured, applied) {
            clients.programmed(&name, self.publisher.triggers(measured, applied));
        }
        Ok(Response::new(wire::ReportResponse {}))
    }
}

fn named(client: Option<wire::Client>) -> StdResult<(ClientName, wire::Client), Status> {
    let client = convert::decode::required("client", client).map_err(|error| refused(&error))?;
    let name = client.name.parse();
    let name = name.map_err(|error| Status::invalid_argument(format!("client.name: {error}")))?;
    Ok((name, client))
}

/// Reports are kept: what no Service is called may not be in them.
fn bounded(key: &ServicePortKey) -> StdResult<(), DecodeError> {
    let ServiceName { namespace, name } = &key.service;
    if [namespace, name, &key.port]
        .iter()
        .all(|text| text.len() <= LONGEST_KEY)
    {
        return Ok(());
    }
    let problem =
        format!("has a part of more than {LONGEST_KEY} bytes, which is longer than in any Service");
    Err(DecodeError::new("failures.key", &problem))
}

fn refused(error: &DecodeError) -> Status {
    Status::invalid_argument(error.to_string())
}

/// How long a connection may be silent before it is asked whether it is there, and then how long
/// it may take to answer. A client that reads slowly answers all the same.
pub const SILENCE: Duration = Duration::from_secs(20);
