//! The sources behind one face: a task that sends what the cluster holds, or what follows from it,
//! then what changes.

use std::{convert::Infallible, net::SocketAddr, path::PathBuf};

use http::Uri;
use proxy_model::ClusterEvent;
use tokio::{sync::mpsc, task::block_in_place};

use super::RunError;
use crate::{
    cluster::{
        Message, Update, brain, kube,
        manifests::{ManifestError, ManifestSource, ManifestWatch, watch},
    },
    own_node::Nodes,
    serving::{Numbers, metrics},
};

/// Batches between source and owner. A source that is faster than the kernel waits, and its API
/// server with it, so that memory stays bounded.
const BATCHES: usize = 64;

/// A source that is ready to be listened to.
pub enum Source {
    /// Files, with the events that they lead to already.
    Manifests(Box<Manifests>),
    /// An API server.
    Kube(Box<kube::Source>),
    /// Another brain.
    Brain(Box<brain::Source>),
}

/// Files, and what was read of them.
pub struct Manifests {
    /// What can be read again.
    source: ManifestSource,
    /// Says when.
    changes: ManifestWatch,
    /// What was read first.
    events: Vec<ClusterEvent>,
}

impl Source {
    /// Reads the manifests, all of which must make sense.
    pub fn manifests(paths: Vec<PathBuf>) -> Result<Self, RunError> {
        // The watch comes first: what changes while the files are read is then seen.
        let changes = watch(&paths)?;
        let mut source = ManifestSource::new(paths);
        let events: Result<_, ManifestError> = block_in_place(|| source.load());
        Ok(Self::Manifests(Box::new(Manifests {
            source,
            changes,
            events: events?,
        })))
    }

    /// For the log and `state`.
    pub fn name(&self) -> String {
        match self {
            Self::Manifests(_) => "manifests".to_owned(),
            Self::Kube(source) => {
                let servers: Vec<_> = source.servers().map(ToString::to_string).collect();
                format!("API server {}", servers.join(", "))
            }
            Self::Brain(source) => format!("brain {}", source.target()),
        }
    }

    /// What the source counts, for metrics.
    pub fn numbers(&self) -> Vec<Numbers> {
        match self {
            Self::Manifests(_) => Vec::new(),
            Self::Kube(source) => vec![metrics::api::numbers(source.counters())],
            Self::Brain(source) => vec![metrics::brain::numbers(source.link().contact())],
        }
    }

    /// Addresses of API servers that are given as such, to compare with those of Services.
    pub fn servers(&self) -> Vec<SocketAddr> {
        match self {
            Self::Manifests(_) | Self::Brain(_) => Vec::new(),
            Self::Kube(source) => source.servers().filter_map(address).collect(),
        }
    }

    /// The brain that is followed, if one is.
    pub fn link(&self) -> Option<brain::Link> {
        match self {
            Self::Manifests(_) | Self::Kube(_) => None,
            Self::Brain(source) => Some(source.link()),
        }
    }

    /// What it means that there is no Node object with the own name.
    pub fn nodes(&self) -> Nodes {
        match self {
            Self::Kube(_) => Nodes::Told,
            Self::Manifests(_) | Self::Brain(_) => Nodes::Given,
        }
    }

    /// Messages that may wait for the owner.
    pub fn queue(&self) -> usize {
        match self {
            Self::Manifests(_) | Self::Kube(_) => BATCHES,
            // What waits at the brain coalesces, and each of these may be the whole state.
            Self::Brain(_) => 1,
        }
    }

    /// Sends until nobody listens.
    pub async fn run(self, sender: mpsc::Sender<Message>) {
        match self {
            Self::Manifests(manifests) => {
                // Fails only when the listener is gone, and with it the agent.
                let Err(_) = manifests.follow(sender).await;
            }
            Self::Kube(source) => source.run(sender).await,
            Self::Brain(source) => source.run(sender).await,
        }
    }
}

fn address(server: &Uri) -> Option<SocketAddr> {
    let host = server.host()?.trim_matches(['[', ']']);
    let port = match server.scheme_str() {
        Some("http") => 80,
        _ => 443,
    };
    Some(SocketAddr::new(
        host.parse().ok()?,
        server.port_u16().unwrap_or(port),
    ))
}

type Closed = mpsc::error::SendError<Message>;

impl Manifests {
    async fn follow(self, sender: mpsc::Sender<Message>) -> Result<Infallible, Closed> {
        let Self {
            mut source,
            mut changes,
            events,
        } = self;
        sender.send(updates(events)).await?;
        sender.send(Message::Synced).await?;
        loop {
            changes.changed().await;
            let poll = block_in_place(|| source.poll());
            for rejected in &poll.rejected {
                tracing::error!(
                    file = %rejected.file.display(),
                    reason = rejected.reason(),
                    "manifest rejected"
                );
            }
            for file in &poll.recovered {
                tracing::info!(file = %file.display(), "manifest accepted again");
            }
            sender.send(updates(poll.events)).await?;
        }
    }
}

fn updates(events: Vec<ClusterEvent>) -> Message {
    let update = |event| Update {
        event,
        trigger: None,
    };
    Message::Updates(events.into_iter().map(update).collect())
}
