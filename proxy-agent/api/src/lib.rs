//! The node API: the brain of a node sends backends what that node must do (KEP-2104). Backends
//! run in any process and in any language; this crate has all that those in Rust need.
//!
//! ```text
//! brain: NodeState ──> server::Publisher ══ culvert.node.v1 ══> client ──> Replica ──> Backend
//!                               ▲                                 │         driver::main
//!                               └──────────── Report ─────────────┘
//! ```
//!
//! - A whole backend: implement [`proxy_model::Backend`] and call [`driver::main`].
//! - Operations as they come: [`client::Follower`].
//! - Rows of your own that follow from the state: [`DiffStore`] finds those that changed.
//!
//! Knows neither Kubernetes nor any dataplane.
#![forbid(unsafe_code)]

pub mod client;
mod convert;
mod diff_store;
#[cfg(feature = "driver")]
pub mod driver;
mod item;
mod operation;
mod replica;
mod report;
#[cfg(feature = "server")]
pub mod server;
mod target;
#[cfg(test)]
mod tests;
mod token;
pub mod wire;

pub use proxy_model as model;

pub use convert::DecodeError;
pub use diff_store::{DiffStore, RowChanges, Rows};
pub use item::{Item, ItemKey, NodeFacts};
pub use operation::{Batch, Operation, Token, Trigger};
pub use replica::Replica;
pub use report::{ClientName, NameError, Report};
pub use target::{Target, TargetError, TlsFiles, TlsFlagsError};
pub use token::{TokenError, TokenProblem};
