//! All that the programs on devices read and write, in memory: packets ([`Bytes`], [`Build`]), maps
//! ([`maps`], [`World`]), and several CPUs that share them ([`interleaved`]).
//!
//! For tests, here and of other packages: the feature `in-memory` is of no use to what runs.
#![expect(clippy::unwrap_used, reason = "only tests use this")]

pub mod build;
pub mod bytes;
pub mod cpu;
pub mod entries;
pub mod interleaved;
pub mod maps;
pub mod programs;
pub mod world;

pub use build::{Build, Payload};
pub use bytes::{Bytes, folded};
pub use programs::Hook;
pub use world::World;
