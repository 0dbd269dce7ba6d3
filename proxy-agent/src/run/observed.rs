//! Tells health and metrics what the owner did. Decides nothing.

mod told;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use proxy_model::{Capability, NodePortSelection};

use self::told::Told;
use crate::{
    events::Recorder,
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
    /// What of it an operator should see on the Node object.
    events: Recorder,
    told: Told,
}

impl Observer {
    /// Tells `serving`, and of what lasts for two sync periods also `events`. `node_ports`: where
    /// health check node ports answer, if they do.
    pub fn new(
        serving: Arc<Serving>,
        node_ports: Option<NodePortSelection>,
        events: Recorder,
        sync_period: Duration,
    ) -> Self {
        Self {
            serving,
            node_ports,
            events,
            told: Told::new(patience(sync_period)),
        }
    }

    /// Syncs have this period from now on.
    pub fn sync_period(&mut self, sync_period: Duration) {
        self.serving.health.sync_period(sync_period);
        self.told.patience(patience(sync_period));
    }

    /// An advance is over.
    pub fn advanced(&mut self, advance: &Advance, pipeline: &Pipeline) {
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
        if pipeline.in_force() {
            serving.settled();
        }
        // Without a sync too: a health check node port that changed is nothing for the kernel.
        self.health_checks(pipeline);
        self.counted(pipeline);
        self.tell(pipeline);
    }

    /// Brings what health check node ports answer to what is in force, and to what is lacking.
    pub fn health_checks(&self, pipeline: &Pipeline) {
        if in_force(pipeline).outside
            && let Some(selection) = &self.node_ports
        {
            let lacks = pipeline.lacks();
            let checks = HealthChecks::of(pipeline.state(), selection, &lacks);
            self.serving.health_checks(checks);
        }
    }

    /// A comparison is over.
    pub fn repaired(&mut self, repair: &Repair, pipeline: &Pipeline) {
        if !repair.differences.is_empty() {
            self.serving.compared(&repair.differences);
            // As kube-proxy, which programs everything again once in a sync period.
            if repair.failed.is_empty() && pipeline.in_force() {
                self.serving.settled();
            }
        }
        if !repair.failed.is_empty() {
            self.serving.failed(&repair.failed);
        }
        self.serving.health.in_force(in_force(pipeline));
        self.counted(pipeline);
        self.tell(pipeline);
    }

    /// What people look at.
    fn tell(&mut self, pipeline: &Pipeline) {
        let behind = behind(pipeline);
        let news = self.told.layers(behind.as_deref(), Instant::now());
        self.serving.readiness.layers(behind);
        let gaps = pipeline.gaps().filter(|(_, ports)| *ports != 0);
        let gaps: Vec<_> = gaps.collect();
        let what = gaps
            .iter()
            .map(|(what, ports)| format!("{}: {ports}", what.as_str()));
        let what = what.collect::<Vec<_>>().join(", ");
        let news = news.into_iter().chain(self.told.gaps(gaps.len(), &what));
        news.for_each(|one| self.events.tell(one));
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

/// What lasts for two periods is worth telling.
const fn patience(sync_period: Duration) -> Duration {
    sync_period.saturating_mul(2)
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
