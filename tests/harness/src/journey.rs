//! Journeys of packets through a node: what a real kernel, with whatever a backend put into it,
//! makes of the first packet of a connection, whoever it says sends it.
//!
//! ```text
//!               ┌──────────── node (a network namespace) ────────────┐
//!  test ──> eth0, cbr0, … (TUN) ──> prerouting ─> forward ─┐         │
//!   │           │                        └─> input ─> raw sockets ──────> test
//!   └──> raw sockets ──> output ───────────────────────────┴─> uplink (TUN) ──> test
//!               └─────────────────────────────────────────────────────┘
//! ```
//!
//! [`datagram`] makes and reads packets, [`tun`] are devices whose other end the test holds,
//! [`local`] is the node itself as sender and receiver, [`rig`] puts them together and says what
//! became of each packet. What had to become of it is not known here.

mod cpu;
pub mod datagram;
pub mod local;
pub mod rig;
pub mod tun;

pub use datagram::Datagram;
pub use rig::{Entry, Rig, Shot, Sighting};
