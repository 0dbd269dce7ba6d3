//! Culvert's agent: a Kubernetes service proxy for one node.
//!
//! ```text
//! cluster (source) ──Message──> pipeline { proxy_model::Model } ──ChangeSet──> backend ──> kernel
//!                                 ├──> admin, report (what people and scripts ask)
//!                                 └──> serving (metrics, health)
//! ```

pub mod admin;
pub mod backend;
pub mod cluster;
pub mod config;
pub mod host;
mod kernel_log;
mod logging;
mod memory;
pub mod once;
mod oom;
mod pipeline;
pub mod report;
pub mod run;
pub mod serving;

pub use logging::{LogForm, LogLevelError, start as start_logging};
