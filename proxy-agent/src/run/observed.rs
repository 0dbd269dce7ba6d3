//! Tells health and metrics what the owner did. Decides nothing.

use std::sync::Arc;

use proxy_model::NodePortSelection;

use crate::{
    pipeline::{Advance, Pipeline, Repair},
    serving::{HealthChecks, Serving, Synced},
};

/// Whom the owner tells.
pub struct Observer {
    /// Health and metrics.
    pub serving: Arc<Serving>,
    /// Where health check node ports answer, if they do: load balancers are told by whoever serves
    /// what they send.
    pub node_ports: Option<NodePortSelection>,
}

impl Observer {
    /// An advance is over.
    pub fn advanced(&self, advance: &Advance, pipeline: &Pipeline) {
        let serving = &self.serving;
        serving.metrics.events(
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
                serving.synced(Synced {
                    whole: sync.whole,
                    took: sync.took,
                    triggers: &sync.triggers,
                });
            }
        }
        // Without a sync too: a health check node port that changed is nothing for the kernel.
        if advance.retry().is_none()
            && let Some(selection) = &self.node_ports
        {
            let lacks = pipeline.backend().lacks();
            serving.health_checks(HealthChecks::of(pipeline.state(), selection, lacks));
        }
        self.counted(pipeline);
    }

    /// A comparison is over.
    pub fn repaired(&self, repair: &Repair, pipeline: &Pipeline) {
        match repair.retry {
            None => self.serving.compared(&repair.differences),
            Some(_) => self.serving.failed(),
        }
        self.counted(pipeline);
    }

    fn counted(&self, pipeline: &Pipeline) {
        let metrics = &self.serving.metrics;
        let not_programmed = pipeline.not_programmed().map(|(key, _)| key);
        metrics.state(pipeline.state(), not_programmed);
        metrics.gaps(pipeline.gaps());
    }
}
