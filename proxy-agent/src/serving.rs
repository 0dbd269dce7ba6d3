//! What the agent tells over HTTP: whether it is well, and figures. Knows neither the source nor
//! the backend: whoever owns the state reports to it.

mod health;

use std::net::SocketAddr;

use serde_json::Value;

pub use self::health::{Answer, Health, Moment, Probe};

/// What is served, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where `/healthz` and `/livez` answer.
    pub healthz: Option<SocketAddr>,
    /// Where `/metrics` answers.
    pub metrics: Option<SocketAddr>,
    /// Whether an address that cannot be bound is an error, instead of being tried again.
    pub hard_fail: bool,
    /// What `/configz` shows.
    pub configuration: Value,
}
