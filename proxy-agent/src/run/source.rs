//! The sources behind one face: a task that sends what the cluster holds, or what follows from it,
//! then what changes.

use std::{convert::Infallible, net::SocketAddr, path::PathBuf, time::Duration};

use http::Uri;
use proxy_model::ClusterEvent;
use tokio::{net::lookup_host, sync::mpsc, task::block_in_place, time::timeout};

use super::RunError;
use crate::{
    cluster::{
        Message, Update, brain, kube,
        manifests::{ManifestError, ManifestSource},
    },
    events::Recorder,
    own_node::Nodes,
    serving::Collector,
    watch::{Watch, watch},
};

/// Batches between source and owner. A source that is faster than the kernel waits, and its API
/// server with it, so that memory stays bounded.
const BATCHES: usize = 1024;

/// How long names of API servers are looked up. It is tried once: whoever serves has to begin.
const RESOLVE: Duration = Duration::from_secs(2);

/// A source that is ready to be listened to.
pub enum Source {
    /// Files, with the events that they lead to already.
    Manifests(Box<Manifests>),
    /// An API server.
    Kube(Box<kube::ApiServerSource>),
    /// Another brain.
    Brain(Box<brain::BrainSource>),
}

/// Files, and what was read of them.
pub struct Manifests {
    /// What can be read again.
    source: ManifestSource,
    /// Says when.
    changes: Watch,
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

    /// Takes news about the own node and Services, where somebody can be told.
    pub fn recorder(&self) -> Recorder {
        match self {
            Self::Kube(source) => source.recorder(),
            Self::Manifests(_) | Self::Brain(_) => Recorder::default(),
        }
    }

    /// What the source counts, for metrics.
    pub fn collectors(&self) -> Vec<Collector> {
        match self {
            Self::Manifests(_) => Vec::new(),
            Self::Kube(source) => {
                let counters = source.counters();
                vec![Box::new(move || kube::figures(&counters))]
            }
            Self::Brain(source) => {
                let contact = source.link().contact();
                vec![Box::new(move || brain::figures(&contact))]
            }
        }
    }

    /// Addresses of API servers, to compare with those of Services: what is given as such, and what
    /// names lead to now, unless that takes long.
    pub async fn servers(&self) -> Vec<SocketAddr> {
        let Self::Kube(source) = self else {
            return Vec::new();
        };
        let places: Vec<_> = source.servers().filter_map(place).collect();
        let mut all = Vec::new();
        for (host, port) in places {
            match timeout(RESOLVE, lookup_host((&*host, port))).await {
                Ok(Ok(addresses)) => all.extend(addresses),
                Ok(Err(error)) => tracing::debug!(host, %error, "API server not resolved yet"),
                Err(_) => tracing::debug!(host, "API server not resolved in time"),
            }
        }
        all
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

fn place(server: &Uri) -> Option<(String, u16)> {
    let host = server.host()?.trim_matches(['[', ']']);
    let port = match server.scheme_str() {
        Some("http") => 80,
        _ => 443,
    };
    Some((host.to_owned(), server.port_u16().unwrap_or(port)))
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
