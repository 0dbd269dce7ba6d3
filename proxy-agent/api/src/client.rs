//! The backend's side: connects to a brain and follows it, through every interruption.

mod backoff;
mod channel;
mod follow;
mod gather;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use proxy_model::Capability;
use thiserror::Error;
use tonic::{
    Code, Request, Status,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};

pub use self::{
    follow::{Event, Follower},
    gather::Gathering,
};
use crate::{
    Batch, ClientName, DecodeError, Report, Target, TlsFiles, Token, TokenError, TokenProblem,
    report, token, wire, wire::node_api_client::NodeApiClient,
};

/// Which brain, and as which client.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Where the brain is.
    pub target: Target,
    /// Certificates; needed for [`Target::Tls`] only. Read at each connection, so that they can be
    /// replaced at run time.
    pub tls: Option<TlsFiles>,
    /// A file with the token to present, for [`Target::Tcp`] only: without it, the brain accepts no
    /// reports. Read for each call, so that it can be replaced at run time.
    pub token_file: Option<PathBuf>,
    /// The name of this client in the brain's output.
    pub name: ClientName,
    /// What it cannot do.
    pub lacks: Vec<Capability>,
}

/// Why a call to a brain failed.
#[derive(Debug, Error)]
pub enum ClientError {
    /// A file of certificates cannot be used.
    #[error("{0}")]
    Tls(String),
    /// A token file cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Nothing listens there, or it did not accept this client.
    #[error("cannot connect to {target}: {reason}")]
    Connect {
        /// Where.
        target: Target,
        /// Why, down to the first cause.
        reason: String,
    },
    /// The brain refused, or the connection broke.
    #[error("{}", told(.0))]
    Refused(Box<Status>),
    /// The brain is connected, but did not answer the call within so many seconds.
    #[error("the brain did not answer the call within {0} s")]
    Unanswered(u64),
    /// The brain sent something invalid.
    #[error("the brain sent something invalid: {0}")]
    Nonsense(#[from] DecodeError),
    /// The brain is stopping, or ended the stream for a reason of its own.
    #[error("the brain ended the stream")]
    Ended,
}

impl ClientError {
    /// Whether the brain refuses this client, whatever it sends and however often.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Token(_) => true,
            Self::Refused(status) => {
                matches!(
                    status.code(),
                    Code::PermissionDenied | Code::Unauthenticated
                )
            }
            _ => false,
        }
    }
}

impl From<Status> for ClientError {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

/// What a status means to somebody who reads a log.
fn told(status: &Status) -> String {
    let cause = channel::causes(status);
    match (status.message(), &*cause) {
        ("", "") => format!("the brain answered {:?}", status.code()),
        (message, cause) if cause.is_empty() || message.contains(cause) => message.to_owned(),
        (message, cause) => format!("{message}: {cause}"),
    }
}

/// A connection to a brain, for single queries and reports. [`Follower`] keeps one by itself.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) api: NodeApiClient<Channel>,
    /// Who asks.
    own: wire::Client,
    token_file: Option<Arc<Path>>,
}

impl Client {
    /// Connects, once.
    pub async fn connect(options: &ClientOptions) -> Result<Self, ClientError> {
        let channel = channel::open(&options.target, options.tls.as_ref()).await?;
        Ok(Self {
            // A Service port with very many endpoints is one message.
            api: NodeApiClient::new(channel).max_decoding_message_size(LARGEST_MESSAGE),
            own: report::client(&options.name, &options.lacks),
            token_file: options.token_file.as_deref().map(Into::into),
        })
    }

    /// A request with what shows who makes it, or without: the state is told to everybody, and what
    /// is wrong with the token is said with each report.
    async fn shown_if_any<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Ok(Some(value)) = self.shows().await {
            request.metadata_mut().insert("authorization", value);
        }
        request
    }

    /// A request with what shows who makes it.
    async fn shown<T>(&self, message: T) -> Result<Request<T>, ClientError> {
        let mut request = Request::new(message);
        if let Some(value) = self.shows().await? {
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }

    /// The token; `None` if there is none to be shown.
    async fn shows(&self) -> Result<Option<MetadataValue<Ascii>>, ClientError> {
        let Some(path) = self.token_file.clone() else {
            return Ok(None);
        };
        // A file system may be slow; whoever else runs here is not to wait.
        let path_ = path.clone();
        let read = tokio::task::spawn_blocking(move || token::read(&path_)).await;
        let failed = |problem| TokenError {
            path: path.to_path_buf(),
            problem,
        };
        let token = read.map_err(|ended| {
            // The runtime stops, or it panicked.
            failed(TokenProblem::Unreadable(io::Error::other(ended)))
        })??;
        let value = MetadataValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|_| failed(TokenProblem::NoToken))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// The whole state, as soon as it differs from `seen`: a long poll. It is one batch, a reset.
    pub async fn next(&self, seen: Option<Token>) -> Result<Batch, ClientError> {
        let request = wire::NextRequest {
            client: Some(self.own.clone()),
            seen: seen.map(Into::into),
        };
        let mut parts = self
            .api
            .clone()
            .next(self.shown_if_any(request).await)
            .await?
            .into_inner();
        let mut gathering = Gathering::of_next();
        while let Some(part) = parts.message().await? {
            gathering.take_part(part)?;
        }
        Ok(gathering.end_of_next()?)
    }

    /// Reports to the brain what became of the state.
    pub async fn report(&self, report: &Report) -> Result<(), ClientError> {
        let request = report.encode(self.own.clone());
        self.api.clone().report(self.shown(request).await?).await?;
        Ok(())
    }

    pub(crate) async fn watch(
        &self,
        resume: Option<Token>,
    ) -> Result<tonic::Streaming<wire::Operation>, ClientError> {
        let request = wire::WatchRequest {
            client: Some(self.own.clone()),
            resume: resume.map(Into::into),
        };
        Ok(self
            .api
            .clone()
            .watch(self.shown_if_any(request).await)
            .await?
            .into_inner())
    }
}

/// 64 MiB: over two million endpoints of one Service port.
const LARGEST_MESSAGE: usize = 64 << 20;
