//! A fake kube-apiserver that speaks real HTTP, behaves like a real one, and goes wrong on
//! command.
//!
//! ```text
//! test ── apply, delete ──> Cluster { Store } ──> list, watch ──> answer ──> body ──> client
//!     └── inject, disturb ────────────────────────────┴──────────────┘
//!     └── until, wait <──── Seen <───────────────────────────────────┘
//! ```
//!
//! It holds Nodes, Services, EndpointSlices and `ServiceCIDR`s under one counter of versions. Lists
//! are selected, paged, and exact where they are asked to be; watches start anywhere in history,
//! stream lists, send bookmarks, and tell an object that a selector ceases to select as deleted.
//! Each server has a thread and a runtime of its own, so synchronous tests can use it as well as
//! asynchronous ones, and it can live in a network namespace.
//!
//! Knows the API, never the agent. What it leaves out: writing through HTTP, protobuf,
//! compression, and HTTP/2.

mod answer;
mod body;
mod cluster;
mod credentials;
mod events;
mod fault;
mod kind;
mod list;
mod object;
mod query;
mod seen;
mod selector;
mod serve;
mod status;
mod store;
#[cfg(test)]
mod tests;
mod tls;
mod transcript;
mod watch;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::AsFd as _,
    sync::Arc,
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use proxy_harness::netns::NetNs;

use self::{
    answer::Responder,
    cluster::Cluster,
    serve::{Door, Serving},
    watch::Command,
};
pub use self::{
    credentials::Credentials,
    fault::{Disturbance, Fault, On},
    kind::Kind,
    query::Verb,
    seen::{Request, Sight},
    tls::{Authority, Identity},
    transcript::Transcript,
};

/// How to start a server.
#[derive(Debug, Default)]
pub struct Options<'a> {
    /// Where it listens; `127.0.0.1` and a free port if `None`.
    pub address: Option<SocketAddr>,
    /// The network namespace it lives in; the caller's if `None`.
    pub netns: Option<&'a NetNs>,
    /// Whose certificate it shows; it speaks plain HTTP if `None`.
    pub authority: Option<Arc<Authority>>,
}

/// What a restart does to versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// They go on, and history is known: another process over the same etcd.
    GoOn,
    /// They go on, and history is forgotten.
    Forget,
    /// They start over, lower than before: etcd was restored.
    StartOver,
}

/// A server. Dropping it ends it.
#[derive(Debug)]
pub struct ApiServer {
    responder: Arc<Responder>,
    authority: Option<Arc<Authority>>,
    serving: Serving,
}

impl ApiServer {
    /// Starts one on the loopback device that speaks plain HTTP and holds nothing.
    pub fn new() -> Result<Self> {
        Self::start(Options::default())
    }

    /// Starts one that holds nothing.
    pub fn start(options: Options<'_>) -> Result<Self> {
        Self::serve(Arc::new(Cluster::new()), options)
    }

    /// Starts another server of the same cluster: same objects and versions, faults and sight of
    /// its own.
    pub fn beside(&self, options: Options<'_>) -> Result<Self> {
        Self::serve(Arc::clone(&self.responder.cluster), options)
    }

    fn serve(cluster: Arc<Cluster>, options: Options<'_>) -> Result<Self> {
        let responder = Arc::new(Responder::new(cluster));
        let anywhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        let netns = match options.netns {
            Some(netns) => Some(netns.as_fd().try_clone_to_owned()?),
            None => None,
        };
        let serving = Serving::start(
            options.address.unwrap_or(anywhere),
            netns,
            options.authority.clone(),
            Arc::clone(&responder),
        )?;
        Ok(Self {
            responder,
            authority: options.authority,
            serving,
        })
    }

    /// All events that were written to this server, in the order in which they were.
    pub fn events(&self) -> Vec<Value> {
        self.responder.state().events.all.clone()
    }

    /// Refuses to take events with this status, or takes them.
    pub fn refuse_events(&self, code: Option<u16>) {
        self.responder.state().events.refused = code;
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.serving.address
    }

    /// Its URL, for `--master` and for kubeconfig files.
    pub fn url(&self) -> String {
        let scheme = if self.authority.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}", self.address())
    }

    // What it holds.

    /// Creates or replaces an object, a `List` of them, or several; gives the last version.
    pub fn apply(&self, object: &Value) -> Result<u64> {
        let items = match object {
            Value::Array(items) => Some(items),
            _ => object.get("items").and_then(Value::as_array),
        };
        let one = std::slice::from_ref(object);
        let items = items.map_or(one, Vec::as_slice);
        self.responder.cluster.write(|store| {
            let mut version = store.version();
            for item in items {
                version = store.apply(item)?;
            }
            Ok(version)
        })
    }

    /// [`ApiServer::apply`] for YAML, which may hold several documents.
    pub fn apply_yaml(&self, text: &str) -> Result<u64> {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(text).context("a test's YAML cannot be read")?;
        let documents: Vec<Value> = documents
            .into_iter()
            .flat_map(|document| match document.get("items") {
                Some(Value::Array(items)) => items.clone(),
                _ => vec![document],
            })
            .collect();
        self.apply(&Value::Array(documents))
    }

    /// Creates or replaces an object by the JSON value `item`, whatever that is: it is sent as it
    /// stands, without a version, and selected by its name and namespace only.
    pub fn apply_raw(&self, kind: Kind, namespace: &str, name: &str, item: &str) -> u64 {
        let place = (kind, namespace.to_owned(), name.to_owned());
        let cluster = &self.responder.cluster;
        cluster.write(|store| store.apply_raw(place, item))
    }

    /// Deletes an object; gives the version of the deletion if there was one.
    pub fn delete(&self, kind: Kind, namespace: &str, name: &str) -> Option<u64> {
        let cluster = &self.responder.cluster;
        cluster.write(|store| store.delete(kind, namespace, name))
    }

    /// All objects that are JSON objects, with kind and API version.
    pub fn objects(&self) -> Vec<Value> {
        self.responder.cluster.read(|store| {
            let text = |object: &Arc<object::Object>| {
                let mut out = Vec::new();
                object.write_object(object.version, &mut out);
                serde_json::from_slice(&out).ok()
            };
            store
                .all()
                .filter_map(text)
                .filter(Value::is_object)
                .collect()
        })
    }

    /// The version of the last change.
    pub fn version(&self) -> u64 {
        self.responder.cluster.read(store::Store::version)
    }

    /// Counts versions up without a change to what is served: other objects changed.
    pub fn skip_versions(&self, count: usize) {
        self.responder
            .cluster
            .write(|store| (0..count).for_each(|_| store.skip_version()));
    }

    /// Forgets history: watches, exact lists and pages from before have expired.
    pub fn forget_history(&self) {
        self.responder.cluster.write(store::Store::compact);
    }

    /// Whether the server knows `kind`; it answers 404 otherwise.
    pub fn set_served(&self, kind: Kind, served: bool) {
        self.responder.cluster.set_served(kind, served);
    }

    /// Pages of at most so many objects for clients that ask for pages.
    pub fn set_page(&self, objects: Option<usize>) {
        self.responder.cluster.set_page(objects);
    }

    /// Answers about `kind` with these bytes from now on; `None` answers as usual again.
    pub fn replay(&self, kind: Kind, transcript: Option<Transcript>) {
        let transcripts = &mut self.responder.state().transcripts;
        match transcript {
            Some(transcript) => transcripts.insert(kind, transcript),
            None => transcripts.remove(&kind),
        };
    }

    // Who is let in.

    /// Lets in only clients with one of these tokens or with a certificate of the authority;
    /// `None` lets in everybody.
    pub fn set_tokens(&self, tokens: Option<&[&str]>) {
        let tokens = tokens.map(|tokens| tokens.iter().map(|&token| token.to_owned()).collect());
        self.responder.state().tokens = tokens;
    }

    /// The authority whose certificate it shows.
    pub fn authority(&self) -> Option<&Arc<Authority>> {
        self.authority.as_ref()
    }

    // What goes wrong.

    /// Makes `fault` strike the coming requests that `on` describes.
    pub fn inject(&self, fault: Fault, on: On) {
        self.responder.state().faults.add(fault, on);
    }

    /// How many faults still wait for a fixed number of requests.
    pub fn pending_faults(&self) -> usize {
        self.responder.state().faults.pending()
    }

    /// Makes all requests succeed again.
    pub fn clear_faults(&self) {
        self.responder.state().faults.clear();
    }

    /// Disturbs the open watches of `kind`, all of them for `None`. What happened before is sent
    /// before.
    pub fn disturb(&self, kind: Option<Kind>, disturbance: &Disturbance) {
        self.order(kind, &Command::Disturb(disturbance.clone()));
    }

    /// Sends a bookmark to every open watch that takes them.
    pub fn bookmark(&self) {
        self.order(None, &Command::Bookmark);
    }

    fn order(&self, kind: Option<Kind>, command: &Command) {
        // The version is read under the same lock under which watches begin: an order is heard
        // by a watch, or the watch begins after it.
        self.responder.cluster.read(|store| {
            let watches = &mut self.responder.state().watches;
            watches.retain(|(_, orders)| !orders.is_closed());
            let meant = |watch: &Kind| kind.is_none_or(|kind| kind == *watch);
            for (_, orders) in watches.iter().filter(|(watch, _)| meant(watch)) {
                // A watch that has just ended hears no more.
                orders.send((store.version(), command.clone())).ok();
            }
        });
    }

    /// Refuses new connections. Open ones stay.
    pub fn refuse(&self) -> Result<()> {
        self.serving.door(Door::Closed)
    }

    /// Lets clients connect and never reads what they say. Open connections stay.
    pub fn stall(&self) -> Result<()> {
        self.serving.door(Door::Stalled)
    }

    /// Accepts connections again.
    pub fn accept(&self) -> Result<()> {
        self.serving.door(Door::Open)
    }

    /// Drops every connection.
    pub fn drop_connections(&self) -> Result<()> {
        self.serving.drop_connections()
    }

    /// Goes away: refuses connections and drops those that are open.
    pub fn stop(&self) -> Result<()> {
        self.refuse()?;
        self.drop_connections()
    }

    /// Goes away and comes back on the same port.
    pub fn restart(&self, versions: Versions) -> Result<()> {
        self.stop()?;
        self.responder.cluster.write(|store| match versions {
            Versions::GoOn => {}
            Versions::Forget => store.compact(),
            Versions::StartOver => store.start_over(),
        });
        self.accept()
    }

    // What it has seen.

    /// All that was seen so far.
    pub fn sight(&self) -> Sight {
        self.responder.seen.now()
    }

    /// Waits until `wanted` gives something; `what` is what the error calls it.
    pub async fn until<T>(&self, what: &str, wanted: impl FnMut(&Sight) -> Option<T>) -> Result<T> {
        self.responder.seen.until(what, wanted).await
    }

    /// Like [`ApiServer::until`], for synchronous tests.
    pub fn wait<T>(&self, what: &str, wanted: impl FnMut(&Sight) -> Option<T>) -> Result<T> {
        self.responder.seen.wait(what, wanted)
    }
}
