//! Culvert's agent: a Kubernetes service proxy for one node.
//!
//! ```text
//! cluster (source) ──Message──> pipeline { proxy_model::Model } ──ChangeSet──> backend ──> kernel
//!                                 ├──> admin, report (what people and scripts ask)
//!                                 └──> serving (metrics, health)
//! ```

#[cfg(target_os = "linux")]
pub mod admin;
pub mod backend;
pub mod backends;
pub mod bounded;
#[cfg(target_os = "linux")]
pub mod bpffs;
pub mod called;
pub mod cluster;
pub mod config;
#[cfg(target_os = "linux")]
pub mod events;
pub mod file;
#[cfg(target_os = "linux")]
pub mod heart;
pub mod host;
#[cfg(target_os = "linux")]
mod kept;
#[cfg(target_os = "linux")]
pub mod leftovers;
pub mod log_format;
#[cfg(target_os = "linux")]
mod logging;
#[cfg(target_os = "linux")]
mod memory;
pub mod once;
#[cfg(target_os = "linux")]
mod oom;
#[cfg(target_os = "linux")]
mod open_files;
pub mod own_node;
#[cfg(target_os = "linux")]
mod pipeline;
pub mod report;
#[cfg(target_os = "linux")]
pub mod run;
#[cfg(target_os = "linux")]
pub mod serving;
#[cfg(target_os = "linux")]
pub mod sinks;
#[cfg(target_os = "linux")]
mod watch;

#[cfg(target_os = "linux")]
pub use logging::{Log, LogForm, LogLevelError, level as log_level, start as start_logging};
