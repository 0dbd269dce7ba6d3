//! The contract between Culvert's kernel programs and its agent: every map key and value, every
//! name, and the decisions that both sides must make alike. `no_std`, no allocation.
//!
//! ```text
//! NODE_ADDRS address                 ──> (NodePorts answer there)
//! FRONTENDS  address, port, protocol ──> service, cluster set, local set, flags, affinity
//! SETS       set                     ──> count
//! SLOTS      set, index < count      ──> endpoint, its address and port, whether it is on this node
//! MEMBERS    set, endpoint           ──> index of its slot
//! RANGES     service, range          ──> (its clients may dial load-balancer IPs)
//! SERVICES   service                 ──> namespace, name, port name
//! AFFINITY   client, service         ──> endpoint, when it was used last
//! ```
//!
//! Byte order: addresses are 16 bytes in network order, IPv4 mapped into IPv6; everything else,
//! ports included, is in host order, so that `bpftool map dump` prints port 80 as 80.
//!
//! A hash element may be recycled for another key while a program still reads it (at once, since
//! kernel 6.1 allocates elements from a per-CPU cache), and nothing orders the bytes of such a
//! write. Every value that programs read therefore carries a check over itself and its key: one
//! that does not hold was caught in between, and is looked up again. See [`socket::route`].
#![no_std]
#![expect(
    clippy::cast_possible_truncation,
    reason = "sizes and indices here are small constants, and hashes want the low bits"
)]

#[cfg(any(test, feature = "in-memory"))]
extern crate std;

pub mod address;
pub mod affinity;
pub mod caller;
mod check;
pub mod counters;
pub mod endpoint;
pub mod flow;
pub mod frontend;
#[cfg(any(test, feature = "in-memory"))]
pub mod in_memory;
mod layout;
pub mod memory;
pub mod names;
pub mod node;
pub mod packet;
pub mod ranges;
pub mod service;
pub mod shared;
pub mod socket;
pub mod tables;
pub mod track;

/// Version of the Service maps: any change of a key or value in [`frontend`], [`endpoint`],
/// [`service`], [`node`], [`ranges`], [`affinity`] or [`counters`], or of their meaning, raises it once there
/// is a release. Maps of another version are rebuilt beside the old ones.
pub const SERVICES_ABI: u32 = 1;

/// Version of the maps of [`track`] and of what goes with them, which outlive the Service maps too.
pub const CONNECTIONS_ABI: u32 = 1;

/// Version of the flow maps in [`flow`], which outlive the Service maps: a new program must be
/// able to read what an older one remembered.
pub const FLOWS_ABI: u32 = 1;
