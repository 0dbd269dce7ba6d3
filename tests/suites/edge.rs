//! Clients outside, served by programs on devices: over TCP and UDP in both families, through restarts,
//! changes of devices, narrow wires and whatever others do to the programs. Endpoints are pods of the
//! node, and see who the client is.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod alone;
#[path = "edge/asked.rs"]
pub mod asked;
mod asymmetric;
mod bridged;
#[path = "edge/detached.rs"]
mod detached;
#[path = "edge/devices.rs"]
mod devices;
mod elsewhere;
#[path = "edge/journeys.rs"]
pub mod journeys;
#[path = "edge/kept.rs"]
mod kept;
#[path = "edge/kinds.rs"]
mod kinds;
#[path = "edge/leaving.rs"]
mod leaving;
mod masqueraded;
#[path = "edge/narrow.rs"]
mod narrow;
mod objects;
mod pair;
#[path = "edge/ranges.rs"]
mod ranges;
mod reordered;
#[path = "edge/resized.rs"]
mod resized;
#[path = "edge/restarted.rs"]
mod restarted;
#[path = "edge/rig.rs"]
pub mod rig;
#[path = "edge/sources.rs"]
mod sources;
#[path = "edge/timeouts.rs"]
mod timeouts;

/// Its name in the list of skips.
const SUITE: &str = "edge";
