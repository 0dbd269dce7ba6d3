//! Whether a Service port fits into the maps, asked before anything is written for it: a full map
//! then costs only what is new. What becomes of what was programmed is decided elsewhere.

use proxy_model::{Endpoint, ServicePortKey, ServiceState};
use thiserror::Error;

use super::{
    encode::{self, WantedFrontend},
    programmed::{Programmed, ProgrammedService, ProgrammedSet, Usage},
};

/// How many entries the maps can hold.
pub type Capacity = Usage;

/// A map has no room for all that a Service port needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "map {map} is full: {needed} more entries needed, {used} of {limit} in use; raise the limit with \
     --map-size {map}=N (N > {limit})"
)]
pub struct Full {
    /// Its name.
    pub map: &'static str,
    /// Entries that are needed besides those in use.
    pub needed: usize,
    /// Entries in use.
    pub used: usize,
    /// Entries that it can hold.
    pub limit: usize,
}

/// Refuses a Service port that needs more entries than are free at any moment of the change.
pub fn check(
    programmed: &Programmed,
    capacity: &Capacity,
    key: &ServicePortKey,
    state: &ServiceState,
    frontends: &[WantedFrontend],
) -> Result<(), Full> {
    let needed = needed(programmed, key, state, frontends);
    let maps = capacity
        .by_map()
        .into_iter()
        .zip(programmed.used.by_map())
        .zip(needed.by_map());
    for (((map, limit), (_, used)), (_, needed)) in maps {
        if needed > 0 && used + needed > limit {
            return Err(Full {
                map,
                needed,
                used,
                limit,
            });
        }
    }
    Ok(())
}

/// Entries that are added before any is removed.
fn needed(
    programmed: &Programmed,
    key: &ServicePortKey,
    state: &ServiceState,
    frontends: &[WantedFrontend],
) -> Usage {
    let none = ProgrammedService::default();
    let known = programmed.services.get(key);
    let service = known.unwrap_or(&none);
    let wanted = [
        (state.cluster_endpoints.as_deref(), service.cluster.as_ref()),
        (state.local_endpoints.as_deref(), service.local.as_ref()),
    ];
    let mut needed = Usage {
        services: usize::from(known.is_none()),
        frontends: frontends
            .iter()
            .filter(|wanted| !programmed.frontends.contains_key(&wanted.key))
            .count(),
        ranges: encode::ranges(service.number, state, frontends)
            .difference(&service.ranges)
            .count(),
        ..Usage::default()
    };
    for (wanted, set) in wanted {
        let Some(wanted) = wanted else { continue };
        needed.sets += usize::from(set.is_none());
        // A new endpoint takes the place of one that is gone, if there is one.
        let kept = wanted
            .iter()
            .filter(|endpoint| holds(set, endpoint))
            .count();
        let (new, gone) = (
            wanted.len() - kept,
            set.map_or(0, |set| set.slots.len()) - kept,
        );
        needed.slots += new.saturating_sub(gone);
    }
    needed.members = needed.slots;
    needed
}

fn holds(set: Option<&ProgrammedSet>, endpoint: &Endpoint) -> bool {
    set.is_some_and(|set| set.index.contains_key(&endpoint.address))
}
