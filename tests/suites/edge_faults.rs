//! Clients outside, served by programs on devices, while the worst happens: a flood of SYNs, ports that
//! are used again at once, or towards an endpoint itself, strict firewalls, firewalls that come later, programs that come to
//! connections, packets that are damaged. A suite of its own, which keeps a machine busy.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "edge_faults/bypassed.rs"]
mod bypassed;
#[path = "edge_faults/direct.rs"]
mod direct;
#[path = "edge_faults/forged.rs"]
mod forged;
#[path = "edge_faults/hostile.rs"]
mod hostile;
#[path = "edge_faults/mangled.rs"]
mod mangled;
#[path = "edge_faults/room.rs"]
mod room;
#[path = "edge_faults/standing.rs"]
mod standing;
#[path = "edge_faults/sums.rs"]
mod sums;
