//! Tells health and metrics what the owner did. Decides nothing.

use std::{collections::BTreeSet, sync::Arc};

use proxy_model::{Capability, NodePortSelection};

use crate::{
    pipeline::{Advance, Layer, Pipeline, Repair},
    serving::{HealthChecks, InForce, LayerNow, Serving, Synced},
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
        if !advance.failed.is_empty() {
            serving.failed(&advance.failed);
        }
        if let Some(sync) = &advance.sync {
            serving.synced(Synced {
                whole: sync.whole,
                took: sync.took,
                triggers: &sync.triggers,
            });
        }
        let in_force = in_force(pipeline);
        serving.health.in_force(in_force);
        serving.readiness.layers(behind(pipeline));
        if pipeline.in_force() {
            serving.metrics.settled();
        }
        // Without a sync too: a health check node port that changed is nothing for the kernel.
        if in_force.outside
            && let Some(selection) = &self.node_ports
        {
            let lacks = pipeline.lacks();
            serving.health_checks(HealthChecks::of(pipeline.state(), selection, &lacks));
        }
        self.counted(pipeline);
    }

    /// A comparison is over.
    pub fn repaired(&self, repair: &Repair, pipeline: &Pipeline) {
        if !repair.differences.is_empty() {
            self.serving.compared(&repair.differences);
        }
        if !repair.failed.is_empty() {
            self.serving.failed(&repair.failed);
        }
        self.serving.health.in_force(in_force(pipeline));
        self.serving.readiness.layers(behind(pipeline));
        self.counted(pipeline);
    }

    fn counted(&self, pipeline: &Pipeline) {
        let metrics = &self.serving.metrics;
        let not_programmed = pipeline.layers().flat_map(Layer::not_programmed);
        let not_programmed: BTreeSet<_> = not_programmed.map(|(key, _)| key).collect();
        metrics.state(pipeline.state(), not_programmed.into_iter());
        metrics.gaps(pipeline.gaps());
        let now = |layer: &Layer| LayerNow {
            name: layer.name(),
            in_force: layer.in_force(),
            not_programmed: layer.not_programmed().count(),
        };
        let layers: Vec<_> = pipeline.layers().map(now).collect();
        metrics.layers_now(&layers);
    }
}

/// Why the state is not in force in every layer; `None` if it is.
fn behind(pipeline: &Pipeline) -> Option<String> {
    let behind = pipeline.layers().filter(|layer| !layer.in_force());
    let told = behind.map(|layer| {
        let why = layer.failure().unwrap_or("its first sync is not over");
        format!("layer {} is behind: {why}", layer.name())
    });
    let told: Vec<_> = told.collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// A layer that never had anything in force is not missed as long as the others can do all: nobody
/// decides by what it would hold.
fn in_force(pipeline: &Pipeline) -> InForce {
    let one_serves = pipeline.layers().any(Layer::serves);
    let others_do = one_serves && pipeline.lacks().is_empty();
    let is_missed = |layer: &&Layer| layer.serves() || !others_do;
    InForce {
        all: pipeline.layers().filter(is_missed).all(Layer::in_force),
        any: pipeline.layers().any(Layer::in_force),
        outside: pipeline.in_force_for(Capability::ExternalTraffic),
    }
}
