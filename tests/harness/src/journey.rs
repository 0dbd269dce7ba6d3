//! Journeys of packets through a node: what a real kernel, with whatever a backend put into it,
//! makes of the first packet of a connection, whoever it says sends it.
//!
//! ```text
//!               ┌──────────── node (a network namespace) ────────────┐
//!  test ──> eth0, cbr0, … ────────> prerouting ─> forward ─┐         │
//!   │           │                        └─> input ─> raw sockets ──────> test
//!   └──> raw sockets ──> output ───────────────────────────┴─> uplink <─────> test
//!               └─────────────────────────────────────────────────────┘
//! ```
//!
//! [`datagram`] makes and reads packets, [`device`] are devices whose other end the test holds, of several
//! kinds, [`tun`] what two of those are made of, [`local`] is the node itself as sender and receiver,
//! [`rig`] puts them together and says what became of each packet. What had to become of it is not known
//! here.

mod cpu;
pub mod datagram;
pub mod device;
pub mod local;
pub mod rig;
pub mod tun;

pub use datagram::Datagram;
pub use device::Kind;
pub use rig::{Entry, Parcel, Rig, Shot, Sighting, UPLINK};
