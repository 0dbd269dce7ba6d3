//! Where cluster objects come from.
//!
//! ```text
//! files ──> manifests ──> object ──> convert ──> ClusterEvent ──> proxy_model::Model
//! ```
//!
//! Knows the Kubernetes API; decides nothing about traffic.

pub mod convert;
#[cfg(target_os = "linux")]
pub mod kube;
pub mod manifests;
pub mod names;
pub mod object;

use std::time::SystemTime;

use proxy_model::ClusterEvent;

/// What a source says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// What changed, in order.
    Updates(Vec<Update>),
    /// Every kind of object has been told once. Said once: before, the state is incomplete, and
    /// to act on it would take away what is served.
    Synced,
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
