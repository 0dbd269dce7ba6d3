//! What came of an advance: for metrics and health, which the pipeline does not know.

use std::time::{Duration, SystemTime};

use proxy_api::{Batch, Item, ItemKey, Operation};
use proxy_model::{ClusterEvent, Difference, IpFamily};

use super::summary::Synced;
use crate::backend::choice::Choice;

/// What one [`super::Pipeline::advance`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Advance {
    /// What the node uses now, if a layer was replaced.
    pub chosen: Option<Choice>,
    /// Events that were folded.
    pub events: u64,
    /// Those that changed a Service.
    pub service_changes: u64,
    /// Those that changed an EndpointSlice.
    pub endpoint_changes: u64,
    /// Layers that failed to take the state, and are tried again.
    pub failed: Vec<&'static str>,
    /// The state came into force, in every layer.
    pub sync: Option<SyncOutcome>,
}

/// How the state came into force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncOutcome {
    /// Whether a layer was given the whole of it, not only what changed.
    pub whole: bool,
    /// Time of model and backends.
    pub took: Duration,
    /// When the cluster changed what is in force now.
    pub triggers: Vec<(IpFamily, SystemTime)>,
}

/// What one [`super::Pipeline::repair`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Repair {
    /// What differed and was mended, by layer.
    pub differences: Vec<(&'static str, Vec<Difference>)>,
    /// Layers that failed, or decide by something else still, and are tried again.
    pub failed: Vec<&'static str>,
}

/// What the layers made of one advance, together.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// One of them took something.
    pub(super) any: bool,
    /// One of them was given the whole state.
    pub(super) whole: bool,
    /// What those took that served before.
    pub(super) synced: Option<Synced>,
}

impl Tally {
    /// Adds what one of them took. `first`: it served nothing before.
    pub(super) fn add(&mut self, whole: bool, synced: Synced, first: bool) {
        self.any = true;
        self.whole |= whole;
        if !first {
            let all = self.synced.get_or_insert_default();
            *all = all.with(synced);
        }
    }
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKind {
    Service,
    Endpoints(Option<IpFamily>),
    Other,
}

pub(super) fn kind(event: &ClusterEvent) -> EventKind {
    match event {
        ClusterEvent::ServiceUpserted(_) | ClusterEvent::ServiceDeleted(_) => EventKind::Service,
        ClusterEvent::SliceUpserted(slice) => EventKind::Endpoints(Some(slice.family)),
        ClusterEvent::SliceDeleted(_) => EventKind::Endpoints(None),
        _ => EventKind::Other,
    }
}

/// What was folded and is not in force yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) events: u64,
    service_changes: u64,
    endpoint_changes: u64,
    /// A failed sync keeps them: the time until they are in force goes on.
    pub(super) triggers: Vec<(IpFamily, SystemTime)>,
    /// Those of them that came since the state was settled.
    pub(super) unsettled_triggers: Vec<(IpFamily, SystemTime)>,
}

/// While no sync succeeds, or nothing is settled, more triggers than this are not kept.
const MOST_TRIGGERS: usize = 10_000;

impl Pending {
    /// Notes an event that changed something.
    pub(super) fn note(&mut self, kind: EventKind, trigger: Option<SystemTime>) {
        match kind {
            EventKind::Service => self.service_changes += 1,
            EventKind::Endpoints(family) => {
                self.endpoint_changes += 1;
                if let (Some(family), Some(trigger)) = (family, trigger) {
                    self.keep((family, trigger));
                }
            }
            EventKind::Other => {}
        }
    }

    /// Notes what another brain says. A change of endpoints in the cluster can be told by its
    /// trigger only; what it changed, as all else, shows as a change of Service ports.
    pub(super) fn note_batch(&mut self, batch: &Batch) {
        let of_service = |operation: &&Operation| {
            matches!(
                operation,
                Operation::Upsert(Item::ServicePort(..))
                    | Operation::Delete(ItemKey::ServicePort(_))
            )
        };
        self.events += batch.operations.len() as u64;
        self.service_changes += batch.operations.iter().filter(of_service).count() as u64;
        self.endpoint_changes += batch.triggers.len() as u64;
        for trigger in &batch.triggers {
            self.keep((trigger.family, trigger.at));
        }
    }

    fn keep(&mut self, trigger: (IpFamily, SystemTime)) {
        for kept in [&mut self.triggers, &mut self.unsettled_triggers] {
            if kept.len() < MOST_TRIGGERS {
                kept.push(trigger);
            }
        }
    }

    /// Takes the counts.
    pub(super) fn counted(&mut self) -> Advance {
        Advance {
            chosen: None,
            events: std::mem::take(&mut self.events),
            service_changes: std::mem::take(&mut self.service_changes),
            endpoint_changes: std::mem::take(&mut self.endpoint_changes),
            failed: Vec::new(),
            sync: None,
        }
    }
}
