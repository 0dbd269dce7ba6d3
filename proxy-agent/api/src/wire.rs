//! The messages as they are on the wire, generated from `proto/culvert/node/v1/node.proto`
//! (`cargo xtask docs` writes them anew). Whoever uses this crate seldom needs them.
#![expect(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]

include!("wire/culvert.node.v1.rs");
