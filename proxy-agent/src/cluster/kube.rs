//! The API server as a source of cluster objects.
//!
//! ```text
//! access ──> servers ──> frames ──> decode ──> known ──> Message
//! (where,    (which      (whole     (API       (what is
//! as whom)    answers)    objects)   objects)   new, gone)
//!                └──────────── follow ───────────┘
//! ```
//!
//! Each kind of objects is followed on its own: listed, then watched, from where it was after
//! every interruption. Objects become model values as they arrive and are not kept; only their
//! names are, to tell what is gone after a list.
//!
//! `kube` gives credentials, TLS and requests. Its `watcher` is not used: it holds a list as text
//! while it decodes it, which is twice the memory of everything else; one object that it cannot
//! decode ends the list; and a watch that is answered with 410 is asked for again for ever.

use std::{
    fmt,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use http::Uri;
use tokio::{sync::mpsc, task::JoinSet};

use super::Message;
use crate::events::Recorder;

mod access;
mod backoff;
mod connector;
mod contact;
mod counters;
mod decode;
mod events;
mod failure;
mod figures;
mod follow;
mod frames;
mod kind;
mod known;
mod requests;
mod servers;
mod token;

use access::Access;
pub use access::{ConnectError, Environment};
use contact::Contact;
pub use counters::{Counters, KindCounters, ObjectKind, Reason};
pub use figures::figures;
use follow::{Follower, Shared};
use kind::{EndpointSlices, Nodes, ServiceCidrs, Services};
use servers::Servers;

/// Ten times what a cluster of 100,000 Services with two slices each and 150,000 pods, as many as
/// Kubernetes is made for, has of any kind. In memory that is 1 GiB or so.
const MOST: usize = 4_000_000;

/// Where the API server is, and what to follow.
#[derive(Clone)]
pub struct ApiServerOptions {
    /// `--kubeconfig`. Without it, the credentials of the container are used, if it has any.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`: one or several API servers, in order of preference, each as a URL or as host
    /// and port; they replace the one of the kubeconfig. Without either, the environment that
    /// kubelet sets names it.
    pub masters: Vec<String>,
    /// The own node.
    pub node: Arc<str>,
    /// When to give up and when to try again.
    pub timing: Timing,
    /// Objects, ports and endpoints of one kind that are kept, together.
    pub most: usize,
    /// Whether a ClusterIP and port are served on this node already, by what an earlier run left
    /// in place: then an API server behind them may be used.
    pub already_programmed: Arc<dyn Fn(SocketAddr) -> bool + Send + Sync>,
}

impl ApiServerOptions {
    /// What kubelet says about the API server, for the node called `node`.
    pub fn new(node: impl Into<Arc<str>>) -> Self {
        Self {
            kubeconfig: None,
            masters: Vec::new(),
            node: node.into(),
            timing: Timing::default(),
            most: MOST,
            already_programmed: Arc::new(|_| false),
        }
    }
}

impl fmt::Debug for ApiServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let masters = self.masters.iter().map(|one| access::without_user(one));
        let masters: Vec<_> = masters.collect();
        f.debug_struct("ApiServerOptions")
            .field("kubeconfig", &self.kubeconfig)
            .field("masters", &masters)
            .field("node", &self.node)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}

/// When to give up and when to try again.
#[derive(Debug, Clone)]
pub struct Timing {
    /// To connect.
    pub connect: Duration,
    /// From a request to the head of its answer, and between the pieces of a list.
    pub answer: Duration,
    /// Between the pieces of a watch. Servers send a bookmark every minute.
    pub silence: Duration,
    /// How long a watch is asked for, at least; twice as long at most.
    pub watch: Duration,
    /// Before the first attempt after a failure; later ones wait longer.
    pub first_wait: Duration,
    /// Between attempts, however often they fail.
    pub longest_wait: Duration,
    /// How long a token is used before its file is read again.
    pub token_age: Duration,
    /// Before it is asked again for objects that the cluster does not have.
    pub absent: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            answer: Duration::from_secs(30),
            // Two bookmarks, and a little.
            silence: Duration::from_secs(130),
            watch: Duration::from_mins(5),
            first_wait: Duration::from_millis(250),
            longest_wait: Duration::from_secs(30),
            token_age: Duration::from_mins(1),
            absent: Duration::from_mins(10),
        }
    }
}

/// Follows the cluster's objects.
pub struct ApiServerSource {
    shared: Arc<Shared>,
    node: Arc<str>,
}

impl fmt::Debug for ApiServerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.servers().collect();
        f.debug_struct("ApiServerSource")
            .field("servers", &servers)
            .finish_non_exhaustive()
    }
}

/// Services, EndpointSlices, the own Node, and `ServiceCIDR`s.
const KINDS: usize = ObjectKind::ALL.len();

impl ApiServerSource {
    /// Finds out where to connect to and as whom. Connects to nothing.
    pub async fn new(options: ApiServerOptions) -> Result<Self, ConnectError> {
        let access = Access::find(&options).await?;
        let counters = Arc::new(Counters::default());
        let servers = Servers::new(access, options.timing.clone(), Arc::clone(&counters))?;
        Ok(Self {
            shared: Arc::new(Shared {
                servers,
                counters,
                timing: options.timing,
                contact: Contact::default(),
                most: options.most,
                missing: AtomicUsize::new(KINDS),
            }),
            node: options.node,
        })
    }

    /// Takes news about the own node and Services, which are written to the API server from now on.
    pub fn recorder(&self) -> Recorder {
        let (recorder, news) = Recorder::channel();
        events::start(Arc::clone(&self.shared), Arc::clone(&self.node), news);
        recorder
    }

    /// What it does, counted.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.shared.counters)
    }

    /// The API servers, in order of preference.
    pub fn servers(&self) -> impl Iterator<Item = &Uri> {
        self.shared.servers.urls()
    }

    /// Tells everything to `sender`, until its receiver is dropped. Failures are no reason to
    /// stop: they are logged, and tried again.
    pub async fn run(self, sender: mpsc::Sender<Message>) {
        let Self { shared, node } = self;
        let own = Some(format!("metadata.name={node}"));
        let mut followers = JoinSet::new();
        let follow = || (Arc::clone(&shared), sender.clone());
        let (shared_, sender_) = follow();
        followers.spawn(Follower::<Services>::new(shared_, sender_, None).run());
        let (shared_, sender_) = follow();
        followers.spawn(Follower::<EndpointSlices>::new(shared_, sender_, None).run());
        let (shared_, sender_) = follow();
        followers.spawn(Follower::<Nodes>::new(shared_, sender_, own).run());
        let (shared_, sender_) = follow();
        followers.spawn(Follower::<ServiceCidrs>::new(shared_, sender_, None).run());
        let ended = tokio::select! {
            // Whoever waits for the server does not notice that nobody listens any more.
            () = sender.closed() => None,
            ended = followers.join_next() => ended,
        };
        followers.shutdown().await;
        // A kind that nobody follows must not go unnoticed.
        if let Some(Err(error)) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
}
