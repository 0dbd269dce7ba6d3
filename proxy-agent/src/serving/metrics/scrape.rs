//! What is counted when somebody scrapes: of a snapshot of the state, and numbers that others
//! hand over.

use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use proxy_model::{Figure, FigureKind, IpFamily, NodeState, ServiceState, TrafficPolicy};

use super::{
    FAMILIES,
    definitions::{DIAGNOSTICS, Definition, ENDPOINTS, NO_LOCAL_ENDPOINTS, SERVICES},
};

/// Figures of one family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Totals {
    services: usize,
    endpoints: usize,
    no_local_internal: usize,
    no_local_external: usize,
}

impl Totals {
    fn add(&mut self, service: &ServiceState) {
        self.services += 1;
        self.endpoints += endpoints(service);
        let none_here = service
            .local_endpoints
            .as_deref()
            .is_none_or(<[_]>::is_empty);
        if !none_here || !service.has_any_endpoints {
            return;
        }
        // The external policy is Local only where there is something to dial from outside.
        let count = |policy| usize::from(policy == TrafficPolicy::Local);
        self.no_local_internal += count(service.internal_policy);
        self.no_local_external += count(service.external_policy);
    }
}

/// Endpoints in either set. Both are ordered.
fn endpoints(service: &ServiceState) -> usize {
    let cluster = service.cluster_endpoints.as_deref().unwrap_or_default();
    let local = service.local_endpoints.as_deref().unwrap_or_default();
    let only_local = local
        .iter()
        .filter(|endpoint| cluster.binary_search(endpoint).is_err());
    cluster.len() + only_local.count()
}

/// One walk over the state.
pub(super) fn of_state(state: &NodeState) -> Vec<MetricFamily> {
    let mut totals = [Totals::default(); FAMILIES.len()];
    for (key, service) in &state.services {
        totals[usize::from(key.family == IpFamily::V6)].add(service);
    }
    let by_family = |of: &Definition, count: fn(&Totals) -> usize| {
        let metrics = FAMILIES
            .iter()
            .zip(&totals)
            .map(|(family, totals)| gauge(&[("ip_family", family.as_str())], count(totals)));
        family(of.name, of.help, MetricType::GAUGE, metrics.collect())
    };
    let no_local = FAMILIES.iter().zip(&totals).flat_map(|(family, totals)| {
        [
            ("external", totals.no_local_external),
            ("internal", totals.no_local_internal),
        ]
        .map(|(policy, count)| {
            gauge(
                &[("ip_family", family.as_str()), ("traffic_policy", policy)],
                count,
            )
        })
    });
    let diagnostics = vec![gauge(&[], state.diagnostics.len())];
    let constant = |of: &Definition, metrics| family(of.name, of.help, MetricType::GAUGE, metrics);
    vec![
        by_family(&SERVICES, |totals| totals.services),
        by_family(&ENDPOINTS, |totals| totals.endpoints),
        constant(&NO_LOCAL_ENDPOINTS, no_local.collect()),
        constant(&DIAGNOSTICS, diagnostics),
    ]
}

/// How names begin that dashboards and alerts for kube-proxy ask for.
const KUBE_PROXYS: &str = "kubeproxy_";

/// Figures with a prefix before their names, but for those that have kube-proxy's. Those of one name need not be
/// neighbours.
pub(super) fn of_figures(prefix: &str, figures: &[Figure]) -> Vec<MetricFamily> {
    let mut families: Vec<(&str, MetricFamily)> = Vec::new();
    for figure in figures {
        let metric = metric(figure.kind, &figure.labels, figure.value);
        if let Some((_, family)) = families.iter_mut().find(|(name, _)| *name == figure.name) {
            family.mut_metric().push(metric);
            continue;
        }
        let kind = match figure.kind {
            FigureKind::Counter => MetricType::COUNTER,
            FigureKind::Gauge => MetricType::GAUGE,
        };
        let name = named(prefix, figure.name);
        families.push((figure.name, family(&name, figure.help, kind, vec![metric])));
    }
    families.into_iter().map(|(_, family)| family).collect()
}

/// The name of a figure in metrics.
pub(in crate::serving) fn named(prefix: &str, name: &str) -> String {
    if name.starts_with(KUBE_PROXYS) {
        name.to_owned()
    } else {
        format!("{prefix}{name}")
    }
}

fn family(name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

fn gauge(labels: &[(&str, &str)], count: usize) -> Metric {
    metric(FigureKind::Gauge, labels, Figure::exact(count as u64))
}

fn metric<V: AsRef<str>>(kind: FigureKind, labels: &[(&str, V)], value: f64) -> Metric {
    let labels = labels.iter().map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value(value.as_ref().to_owned());
        pair
    });
    let mut metric = Metric::from_label(labels.collect());
    match kind {
        FigureKind::Counter => {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        }
        FigureKind::Gauge => {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
    }
    metric
}
