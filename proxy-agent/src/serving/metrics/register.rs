//! Definitions to metrics in a registry.

use prometheus::{
    CounterVec, GaugeVec, HistogramOpts, HistogramVec, IntCounter, Opts, Registry, core::Collector,
};

use super::definitions::{self, Definition};

/// Puts a metric into the registry. Names are unique, which a test of the definitions proves.
fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    metric: prometheus::Result<C>,
) -> C {
    let metric = metric.expect("definitions hold valid names");
    registry
        .register(Box::new(metric.clone()))
        .expect("definitions hold each name once");
    metric
}

fn options(of: &Definition) -> Opts {
    Opts::new(of.name, of.help)
}

pub(super) fn plain_counter(registry: &Registry, of: &Definition) -> IntCounter {
    registered(registry, IntCounter::with_opts(options(of)))
}

pub(super) fn counter(registry: &Registry, of: &Definition) -> CounterVec {
    registered(registry, CounterVec::new(options(of), of.labels))
}

pub(super) fn gauge(registry: &Registry, of: &Definition) -> GaugeVec {
    registered(registry, GaugeVec::new(options(of), of.labels))
}

pub(super) fn histogram(registry: &Registry, of: &Definition) -> HistogramVec {
    let options = HistogramOpts::from(options(of)).buckets(definitions::buckets(of));
    registered(registry, HistogramVec::new(options, of.labels))
}
