//! Where cluster objects come from.
//!
//! ```text
//! files ──> manifests ──> object ──> convert ──> ClusterEvent ──> proxy_model::Model
//! ```
//!
//! Knows the Kubernetes API; decides nothing about traffic. Another brain may have decided that
//! already: then it tells what follows from the cluster.

#[cfg(target_os = "linux")]
pub mod brain;
mod brief;
pub mod convert;
#[cfg(target_os = "linux")]
pub mod kube;
pub mod manifests;
pub mod names;
pub mod object;

use std::time::SystemTime;

use jiff::Timestamp;
use proxy_model::ClusterEvent;
#[cfg(target_os = "linux")]
use proxy_model::Figure;
use serde::Serialize;

/// Every figure that sources report, at its start, by what the source is: for the reference page, and for
/// what checks the names of metrics.
#[cfg(target_os = "linux")]
pub fn figures() -> [(&'static str, Vec<Figure>); 2] {
    let contact = brain::Contact::new(String::new());
    [
        ("the API server", kube::figures(&kube::Counters::default())),
        ("another brain", brain::figures(&contact)),
    ]
}

/// What a source says.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// What changed, in order.
    Updates(Vec<Update>),
    /// Every kind of object has been told once. Said once: before, the state is incomplete, and
    /// to act on it would take away what is served.
    Synced,
    /// All that leads to another state, as another brain decided it. From the first one on, the
    /// state is complete.
    Batch(proxy_api::Batch),
}

/// One change of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// What changed.
    pub event: ClusterEvent,
    /// For an EndpointSlice: when that happened in the cluster which made it change, by the
    /// cluster's clock.
    pub trigger: Option<SystemTime>,
}

/// A source that cannot be heard: what it said last is as old as this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stale {
    /// Since when it cannot be heard.
    pub since: Timestamp,
    /// Why not, at last.
    pub reason: String,
}
