//! What suites see: the harness, and the API server of those whose agent reads one.
//!
//! Nothing is made here. Suites are in `suites/`, each a module of one of few test programs.

pub use proxy_api_server as api_server;
pub use proxy_harness::*;
