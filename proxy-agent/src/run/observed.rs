//! Tells health and metrics what the owner did. Decides nothing.

use crate::{
    pipeline::{Advance, Pipeline, Repair},
    serving::{HealthChecks, Serving, Sync},
};

/// An advance is over.
pub fn advanced(serving: &Serving, advance: &Advance, pipeline: &Pipeline) {
    let metrics = &serving.metrics;
    metrics.events(
        advance.events,
        advance.service_changes,
        advance.endpoint_changes,
    );
    let node = &pipeline.state().node.object;
    serving
        .health
        .node(node.as_ref().is_none_or(|node| node.eligible));
    match &advance.sync {
        None => serving.settled(),
        Some(sync) if sync.retry.is_some() => serving.failed(),
        Some(sync) => {
            serving.synced(Sync {
                whole: sync.whole,
                took: sync.took,
                triggers: &sync.triggers,
            });
        }
    }
    // Without a sync too: a health check node port that changed is nothing for the kernel.
    if advance.retry().is_none() {
        serving.health_checks(HealthChecks::of(
            pipeline.state(),
            &pipeline.model().settings().node_ports,
            pipeline.backend().lacks(),
        ));
    }
    counted(serving, pipeline);
}

/// A comparison is over.
pub fn repaired(serving: &Serving, repair: &Repair, pipeline: &Pipeline) {
    match repair.retry {
        None => serving.compared(&repair.differences),
        Some(_) => serving.failed(),
    }
    counted(serving, pipeline);
}

fn counted(serving: &Serving, pipeline: &Pipeline) {
    let not_programmed = pipeline.not_programmed().map(|(key, _)| key);
    serving.metrics.state(pipeline.state(), not_programmed);
    serving.metrics.gaps(pipeline.gaps());
}
