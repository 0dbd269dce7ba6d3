//! eBPF over nftables, as the default agent has it: which layer decides about what, and what each does
//! while the other one is lost, late or behind. Needs root, BPF and nftables.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "layers/behind.rs"]
mod behind;
#[path = "layers/beside.rs"]
mod beside;
#[path = "layers/clients.rs"]
mod clients;
#[path = "layers/explained.rs"]
mod explained;
#[path = "layers/late.rs"]
mod late;
#[path = "layers/lost.rs"]
mod lost;
#[path = "layers/masqueraded.rs"]
mod masqueraded;
#[path = "layers/packets.rs"]
mod packets;
#[path = "layers/restarted.rs"]
mod restarted;
#[path = "layers/rig.rs"]
pub mod rig;
#[path = "layers/stage.rs"]
mod stage;
#[path = "layers/stale.rs"]
mod stale;
#[path = "layers/sticky.rs"]
mod sticky;
#[path = "layers/table.rs"]
mod table;
#[path = "layers/tracked.rs"]
pub mod tracked;

use std::time::Duration;

const SUITE: &str = "layers";

/// How long anything may take. What is waited for takes a small part of it.
const LIMIT: Duration = Duration::from_mins(1);
