//! What the fuzz targets do with the bytes that a fuzzer invents. A target returns whatever it is
//! given, or panics: then something is broken.
//!
//! ```text
//! objects   text ──manifests──> ClusterEvent ──┐
//! model     bytes ──events────> ClusterEvent ──┴─> Model ──────> state, changes, reports, verdicts
//! wire      bytes ──────────────operations────────> Replica ──┘
//! ```
//!
//! Knows no fuzzer: the programs in `targets/` do.

mod changes;
mod events;
pub mod model;
pub mod objects;
mod questions;
pub mod wire;
