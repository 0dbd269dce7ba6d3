//! What the fuzz targets do with the bytes that a fuzzer invents. A target returns whatever it is
//! given, or panics: then something is broken.
//!
//! ```text
//! objects   text ──manifests──> ClusterEvent ──┐
//! model     bytes ──events────> ClusterEvent ──┴─> Model ──────> state, changes, reports, verdicts
//! wire      bytes ──────────────operations────────> Replica ──┘
//! configuration  text ──────────> settings, and the same in the other version
//! packets   bytes ──steps──────> packets, as they come and leave ──> maps in memory
//! ```
//!
//! Knows no fuzzer: the programs in `targets/` do.

mod changes;
pub mod configuration;
mod events;
pub mod model;
pub mod objects;
pub mod packets;
mod questions;
pub mod wire;

/// Bytes without any sense, the same each time, of many lengths.
#[cfg(test)]
fn noise() -> impl Iterator<Item = Vec<u8>> {
    let mut seed = 1_u64;
    let mut byte = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed.to_be_bytes()[0]
    };
    (0..400).map(move |length| (0..length * 3).map(|_| byte()).collect())
}
