//! The calls of the API: who may, what is asked, and who answers.

use std::{result::Result as StdResult, time::Duration};

use tokio::sync::watch;
use tonic::{Request, Response, Status, async_trait};

use super::{
    answers::{self, Answers},
    clients::{MOST_STREAMS, Stream},
    feed::{self, Part, Step},
    publisher::Publisher,
};
use crate::{ClientName, DecodeError, convert, wire, wire::node_api_server::NodeApi};

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

    fn enter(&self, client: Option<wire::Client>) -> StdResult<Stream, Status> {
        let (name, client) = named(client)?;
        let lacks = convert::reports::capabilities(&client);
        let stream = self.publisher.registry().enter(&name, lacks);
        stream.ok_or_else(|| {
            Status::resource_exhausted(format!(
                "{MOST_STREAMS} calls are open already, more are not served; look for a client \
                 that opens calls and never ends them"
            ))
        })
    }
}

#[async_trait]
impl NodeApi for Service {
    type WatchStream = Answers<Step, wire::Operation>;
    type NextStream = Answers<Part, wire::NextPart>;

    async fn watch(&self, request: Request<wire::WatchRequest>) -> Result<Self::WatchStream> {
        let request = request.into_inner();
        let stream = self.enter(request.client)?;
        let (sender, answers) = answers::channel();
        let resume = request.resume.map(Into::into);
        self.spawn(feed::watch(self.publisher.clone(), stream, resume, sender));
        Ok(Response::new(answers))
    }

    async fn next(&self, request: Request<wire::NextRequest>) -> Result<Self::NextStream> {
        let request = request.into_inner();
        let stream = self.enter(request.client)?;
        let (sender, answers) = answers::channel();
        let seen = request.seen.map(Into::into);
        self.spawn(feed::next(self.publisher.clone(), stream, seen, sender));
        Ok(Response::new(answers))
    }

    async fn report(&self, request: Request<wire::ReportRequest>) -> Result<wire::ReportResponse> {
        let request = request.into_inner();
        let (name, client) = named(request.client)?;
        // That of another brain is none of ours: it will be told a reset, and reports again.
        let revision = |token: wire::Token| self.publisher.revision_of(token.into()).unwrap_or(0);
        let applied = request.applied.map(revision);
        let failures =
            convert::reports::failures(request.failures).map_err(|error| refused(&error))?;
        let error = Some(request.error).filter(|error| !error.is_empty());
        let clients = self.publisher.registry();
        let lacks = convert::reports::capabilities(&client);
        let before = clients.report(&name, lacks, applied, failures, error);
        if let (Some(before), Some(applied)) = (before.filter(|one| *one > 0), applied) {
            clients.programmed(&name, self.publisher.triggers(before, applied));
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

fn refused(error: &DecodeError) -> Status {
    Status::invalid_argument(error.to_string())
}

/// How long a connection may be silent before it is asked whether it is there, and then how long
/// it may take to answer. A client that reads slowly answers all the same.
pub const SILENCE: Duration = Duration::from_secs(20);
