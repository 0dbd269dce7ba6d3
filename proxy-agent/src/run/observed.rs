//! Tells health and metrics what the owner did. Decides nothing.

use proxy_model::Backend;

use crate::{
    pipeline::{Advance, Pipeline},
    serving::{Serving, Sync},
};

/// An advance is over.
pub fn advanced<B: Backend>(serving: &Serving, advance: &Advance, pipeline: &Pipeline<B>) {
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
                state: pipeline.state(),
            });
            metrics.not_programmed(pipeline.not_programmed().map(|(key, _)| key));
        }
    }
}
