//! Figures in Prometheus' text format. What the run loop calls costs a few atomic operations;
//! what needs a walk over the state is counted when somebody scrapes.

mod conntrack;
pub mod definitions;
mod layers;
mod register;
mod reloads;
mod scrape;
mod shown;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use prometheus::{
    CounterVec, GaugeVec, HistogramVec, IntCounter, Registry, TextEncoder,
    process_collector::ProcessCollector,
};
use proxy_model::{
    Capability, Difference, DifferenceKind, Figure, FigureKind, IpFamily, NodeState, ServicePortKey,
};

pub(super) use self::scrape::named;
pub use self::{conntrack::Conntrack, layers::LayerNow};
use self::{
    definitions::{self as define, Definition},
    layers::Layers,
    register::{counter, gauge, histogram, plain_counter},
    reloads::Reloads,
    shown::Shown,
};
use super::health::Probe;
use crate::{backend::choice::Choice, logging};

const FAMILIES: [IpFamily; 2] = [IpFamily::V4, IpFamily::V6];

/// Media type of the text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// One sync that succeeded.
#[derive(Debug, Clone, Copy)]
pub struct Synced<'a> {
    /// Whether it was about the whole state, not about what changed.
    pub whole: bool,
    /// Time of model and backend.
    pub took: Duration,
    /// When the cluster changed what is in force now.
    pub triggers: &'a [(IpFamily, SystemTime)],
}

/// Figures of another part of the agent, collected at each scrape: under the full names of metrics.
pub type Collector = Box<dyn Fn() -> Vec<Figure> + Send + Sync>;

/// All metrics.
pub struct Metrics {
    registry: Registry,
    /// Changes from before are none of this agent's: a restart would count them as slow.
    started: SystemTime,
    sync: HistogramVec,
    full_sync: HistogramVec,
    partial_sync: HistogramVec,
    last_sync: GaugeVec,
    last_queued: GaugeVec,
    network_programming: HistogramVec,
    endpoint_changes: Changes,
    service_changes: Changes,
    healthz: CounterVec,
    livez: CounterVec,
    source_synced: GaugeVec,
    node_missing: GaugeVec,
    events: IntCounter,
    revisions: IntCounter,
    sync_failures: IntCounter,
    comparisons: IntCounter,
    last_comparison: GaugeVec,
    repairs: CounterVec,
    not_programmed: GaugeVec,
    health_check_ports: GaugeVec,
    gaps: GaugeVec,
    counted: Mutex<Counted>,
    elsewhere: Vec<Collector>,
    /// Which backends serve.
    shown: Shown,
    /// How each of them does.
    layers: Layers,
    /// What became of changes of the configuration file.
    pub reloads: Reloads,
}

/// What is counted at a scrape.
#[derive(Debug, Default)]
struct Counted {
    /// A snapshot shares all that did not change since.
    state: NodeState,
    /// Of each backend that served, by its name: what one has counted is not undone by another.
    figures: BTreeMap<&'static str, Vec<Figure>>,
}

/// Changes of one sort of objects.
#[derive(Debug)]
struct Changes {
    total: IntCounter,
    pending: GaugeVec,
}

impl Changes {
    fn new(registry: &Registry, total: &Definition, pending: &Definition) -> Self {
        let pending = gauge(registry, pending);
        pending.with_label_values::<&str>(&[]).set(0.0);
        Self {
            total: plain_counter(registry, total),
            pending,
        }
    }

    fn seen(&self, count: u64) {
        self.total.inc_by(count);
        #[expect(
            clippy::cast_precision_loss,
            reason = "no cluster has 2^53 changes at once"
        )]
        self.pending
            .with_label_values::<&str>(&[])
            .add(count as f64);
    }

    fn settled(&self) {
        self.pending.with_label_values::<&str>(&[]).set(0.0);
    }
}

impl Metrics {
    /// Every metric at its start, all known label values included, so that a query finds zeros.
    /// `backends` are the names of all that this program has.
    pub fn new(
        chosen: &Choice,
        backends: &[&'static str],
        conntrack: &Conntrack,
        elsewhere: Vec<Collector>,
    ) -> Self {
        let registry = Registry::new();
        let at = &registry;
        let process = ProcessCollector::for_self();
        at.register(Box::new(process))
            .expect("a new registry has no metric of this name");
        conntrack.register(at);
        let metrics = Self {
            shown: Shown::new(at, chosen, backends),
            layers: Layers::new(at, backends),
            reloads: Reloads::new(at),
            started: SystemTime::now(),
            sync: histogram(at, &define::SYNC_DURATION),
            full_sync: histogram(at, &define::FULL_SYNC_DURATION),
            partial_sync: histogram(at, &define::PARTIAL_SYNC_DURATION),
            last_sync: gauge(at, &define::LAST_SYNC),
            last_queued: gauge(at, &define::LAST_QUEUED),
            network_programming: histogram(at, &define::NETWORK_PROGRAMMING),
            endpoint_changes: Changes::new(
                at,
                &define::ENDPOINT_CHANGES,
                &define::ENDPOINT_CHANGES_PENDING,
            ),
            service_changes: Changes::new(
                at,
                &define::SERVICE_CHANGES,
                &define::SERVICE_CHANGES_PENDING,
            ),
            healthz: counter(at, &define::HEALTHZ),
            livez: counter(at, &define::LIVEZ),
            source_synced: gauge(at, &define::SOURCE_SYNCED),
            node_missing: gauge(at, &define::NODE_MISSING),
            events: plain_counter(at, &define::EVENTS),
            revisions: plain_counter(at, &define::REVISIONS),
            sync_failures: plain_counter(at, &define::SYNC_FAILURES),
            comparisons: plain_counter(at, &define::COMPARISONS),
            last_comparison: gauge(at, &define::LAST_COMPARISON),
            repairs: counter(at, &define::REPAIRS),
            not_programmed: gauge(at, &define::NOT_PROGRAMMED),
            health_check_ports: gauge(at, &define::HEALTH_CHECK_PORTS),
            gaps: gauge(at, &define::CAPABILITY_GAPS),
            counted: Mutex::default(),
            elsewhere,
            registry,
        };
        metrics.start_at_zero();
        metrics
    }

    /// The names of the layers in use, the one that decides first first.
    pub fn layers(&self) -> Vec<&'static str> {
        self.shown.layers()
    }

    /// How the layers are now; there are no others.
    pub fn layers_now(&self, layers: &[LayerNow]) {
        self.layers.now(layers);
    }

    /// What is lacking has changed.
    pub fn lacks(&self, choice: &Choice) {
        self.shown.lacks(choice);
    }

    /// Other layers are in use.
    pub fn chosen(&self, choice: &Choice) {
        // What the one before holds in the kernel goes with it; what it has counted is counted.
        let mut counted = self.counted();
        let gone = counted.figures.iter_mut();
        let gone = gone.filter(|(name, _)| !choice.layers.contains(*name));
        let gauges = gone.flat_map(|(_, figures)| figures);
        for figure in gauges.filter(|figure| figure.kind == FigureKind::Gauge) {
            figure.value = 0.0;
        }
        drop(counted);
        self.shown.change(choice);
    }

    /// A label value that was never used does not show.
    fn start_at_zero(&self) {
        for family in FAMILIES.map(IpFamily::as_str) {
            for histogram in [
                &self.sync,
                &self.full_sync,
                &self.partial_sync,
                &self.network_programming,
            ] {
                histogram.with_label_values(&[family]);
            }
            for gauge in [&self.last_sync, &self.last_queued, &self.not_programmed] {
                gauge.with_label_values(&[family]).set(0.0);
            }
        }
        for code in ["200", "503"] {
            self.healthz.with_label_values(&[code]);
            self.livez.with_label_values(&[code]);
        }
        for capability in Capability::ALL {
            self.gaps.with_label_values(&[capability.as_str()]).set(0.0);
        }
        for kind in DifferenceKind::ALL {
            self.repairs.with_label_values(&[kind.as_str()]);
        }
        self.source_synced.with_label_values::<&str>(&[]).set(0.0);
        self.last_comparison.with_label_values::<&str>(&[]).set(0.0);
        self.node_missing(false);
        self.health_check_ports(0, 0);
    }

    /// Shows what somebody else observes.
    pub fn also(&self, histogram: HistogramVec) {
        self.registry
            .register(Box::new(histogram))
            .expect("definitions hold each name once");
    }

    /// The source has told the whole cluster.
    pub fn source_synced(&self) {
        self.source_synced.with_label_values::<&str>(&[]).set(1.0);
    }

    /// Whether no node of the cluster has the own name.
    pub fn node_missing(&self, missing: bool) {
        let gauge = self.node_missing.with_label_values::<&str>(&[]);
        gauge.set(Figure::exact(missing.into()));
    }

    /// Events were folded; of them, these changed a Service or an EndpointSlice.
    pub fn events(&self, all: u64, service_changes: u64, endpoint_changes: u64) {
        self.events.inc_by(all);
        self.service_changes.seen(service_changes);
        self.endpoint_changes.seen(endpoint_changes);
    }

    /// Something is to be brought into force.
    pub fn queued(&self, now: SystemTime) {
        for family in FAMILIES {
            let last = self.last_queued.with_label_values(&[family.as_str()]);
            last.set(seconds(now));
        }
    }

    /// The kernel has all that it should: nothing waits any more.
    pub fn settled(&self, now: SystemTime) {
        self.service_changes.settled();
        self.endpoint_changes.settled();
        for family in FAMILIES.map(IpFamily::as_str) {
            let last = self.last_sync.with_label_values(&[family]);
            last.set(seconds(now));
        }
    }

    /// A sync succeeded.
    pub fn synced(&self, sync: Synced<'_>, now: SystemTime) {
        self.settled(now);
        self.revisions.inc();
        let which = if sync.whole {
            &self.full_sync
        } else {
            &self.partial_sync
        };
        for family in FAMILIES.map(IpFamily::as_str) {
            for histogram in [&self.sync, which] {
                let histogram = histogram.with_label_values(&[family]);
                histogram.observe(sync.took.as_secs_f64());
            }
        }
        let recent = |(_, trigger): &&(IpFamily, SystemTime)| *trigger >= self.started;
        for (family, trigger) in sync.triggers.iter().filter(recent) {
            // A clock of the control plane that goes ahead gives a change that took no time.
            let took = now.duration_since(*trigger).unwrap_or_default();
            let histogram = self
                .network_programming
                .with_label_values(&[family.as_str()]);
            histogram.observe(took.as_secs_f64());
        }
    }

    /// The state that is, or shall be, in force, and the Service ports in it that a layer could not
    /// program, each once. Kept until the next scrape: it shares all that does not change.
    pub fn state<'a>(
        &self,
        state: &NodeState,
        not_programmed: impl Iterator<Item = &'a ServicePortKey>,
    ) {
        self.counted().state = state.clone();
        let mut counts = [0.0; FAMILIES.len()];
        for port in not_programmed {
            counts[usize::from(port.family == IpFamily::V6)] += 1.0;
        }
        for (family, count) in FAMILIES.iter().zip(counts) {
            let gauge = self.not_programmed.with_label_values(&[family.as_str()]);
            gauge.set(count);
        }
    }

    /// Health check node ports on addresses where the agent listens, and where it cannot.
    pub fn health_check_ports(&self, listening: u64, failed: u64) {
        for (state, count) in [("listening", listening), ("failed", failed)] {
            let gauge = self.health_check_ports.with_label_values(&[state]);
            gauge.set(Figure::exact(count));
        }
    }

    /// How many Service ports need what the backend lacks.
    pub fn gaps(&self, counts: impl Iterator<Item = (Capability, usize)>) {
        for (capability, count) in counts {
            let gauge = self.gaps.with_label_values(&[capability.as_str()]);
            gauge.set(Figure::exact(count as u64));
        }
    }

    /// The syncs or comparisons of these layers failed as a whole.
    pub fn failed(&self, layers: &[&'static str]) {
        self.sync_failures.inc();
        for layer in layers {
            self.layers.failed(layer);
        }
    }

    /// The kernel was compared with the state, and this was mended, by layer.
    pub fn compared(&self, repaired: &[(&'static str, Vec<Difference>)], now: SystemTime) {
        self.comparisons.inc();
        let last = self.last_comparison.with_label_values::<&str>(&[]);
        last.set(seconds(now));
        for (layer, differences) in repaired {
            self.layers.repaired(layer, differences.len());
            for difference in differences {
                let kind = difference.kind.as_str();
                self.repairs.with_label_values(&[kind]).inc();
            }
        }
    }

    /// What the backend of this name counted: `culvert_BACKEND_` is put before the names, but for kube-proxy's.
    pub fn figures(&self, backend: &'static str, figures: Vec<Figure>) {
        self.counted().figures.insert(backend, figures);
    }

    /// A probe was answered.
    pub fn probed(&self, probe: Probe, code: u16) {
        let counter = match probe {
            Probe::Healthz => &self.healthz,
            Probe::Livez => &self.livez,
        };
        counter.with_label_values(&[&code.to_string()]).inc();
    }

    /// Everything, as text.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        let mut families = self.registry.gather();
        {
            let counted = self.counted();
            families.extend(scrape::of_state(&counted.state));
            for (backend, figures) in &counted.figures {
                let prefix = format!("culvert_{backend}_");
                families.extend(scrape::of_figures(&prefix, figures));
            }
        }
        families.extend(scrape::of_figures("", &[log_lines_lost()]));
        for numbers in &self.elsewhere {
            families.extend(scrape::of_figures("", &numbers()));
        }
        families.sort_by(|one, other| one.name().cmp(other.name()));
        TextEncoder::new().encode_to_string(&families)
    }

    fn counted(&self) -> std::sync::MutexGuard<'_, Counted> {
        // Each change is one assignment: a panic elsewhere leaves nothing half done.
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// The log belongs to the process, not to a part of it.
fn log_lines_lost() -> Figure {
    Figure {
        name: define::LOG_LINES_LOST.name,
        kind: FigureKind::Counter,
        help: define::LOG_LINES_LOST.help,
        labels: Vec::new(),
        value: Figure::exact(logging::lost()),
    }
}

/// Seconds since 1970, with a fraction.
fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}
