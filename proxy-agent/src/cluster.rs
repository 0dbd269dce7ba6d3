//! Where cluster objects come from.
//!
//! ```text
//! files ──> manifests ──> k8s-openapi objects ──> convert ──> ClusterEvent ──> proxy_model::Model
//! ```
//!
//! Knows the Kubernetes API; decides nothing about traffic.

pub mod convert;
pub mod manifests;
