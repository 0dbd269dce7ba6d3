//! Holds a backend against the oracle, packet by packet: what a real kernel makes of a packet must
//! be what the oracle says of it, whatever the backend is made of.
//!
//! ```text
//! scenario files ─┐
//! [`random`] ─────┴─> node-local states ──> brain ──> backend ──> kernel of a [`journey`] node
//!                          │                                          │
//!                          ├─> [`packets`]: what to send ─────────────┤
//!                          └─> oracle: what must become of it ──> [`verdict`] <── what became of it
//! ```
//!
//! Where programs on devices take some of the packets, [`devices`] tells by whom each was translated, and
//! has endpoints answer.
//!
//! [`dialling`] does the same with the probes of scenarios, between real sockets, and [`sockets`] makes
//! up such scenarios.
//!
//! [`journey`]: crate::journey

pub mod devices;
pub mod dialling;
pub mod gaps;
pub mod packets;
pub mod random;
pub mod sockets;
pub mod trial;
pub mod verdict;
pub mod witness;
