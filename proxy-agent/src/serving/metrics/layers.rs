//! Each layer as metrics. No series ever goes: of a backend that is no layer any more, what held is
//! 0.

use prometheus::{CounterVec, GaugeVec, Registry};
use proxy_model::Figure;

use super::{
    definitions as define,
    register::{counter, gauge},
};

/// What is shown of each layer.
pub(super) struct Layers {
    in_force: GaugeVec,
    not_programmed: GaugeVec,
    failures: CounterVec,
    repairs: CounterVec,
    /// The names of all backends that there are.
    backends: Vec<&'static str>,
}

/// One layer, as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerNow {
    /// The name of its backend.
    pub name: &'static str,
    /// Whether it holds the state.
    pub in_force: bool,
    /// How many Service ports it could not program.
    pub not_programmed: usize,
}

impl Layers {
    pub(super) fn new(registry: &Registry, backends: &[&'static str]) -> Self {
        let layers = Self {
            in_force: gauge(registry, &define::LAYER_IN_FORCE),
            not_programmed: gauge(registry, &define::LAYER_NOT_PROGRAMMED),
            failures: counter(registry, &define::LAYER_SYNC_FAILURES),
            repairs: counter(registry, &define::LAYER_REPAIRS),
            backends: backends.to_vec(),
        };
        layers.now(&[]);
        for name in backends {
            layers.failures.with_label_values(&[name]);
            layers.repairs.with_label_values(&[name]);
        }
        layers
    }

    /// How the layers are now; there are no others.
    pub(super) fn now(&self, layers: &[LayerNow]) {
        let gone = self.backends.iter();
        let gone = gone.filter(|name| !layers.iter().any(|layer| layer.name == **name));
        let gone = gone.map(|name| LayerNow {
            name,
            in_force: false,
            not_programmed: 0,
        });
        for layer in layers.iter().copied().chain(gone) {
            let of = |gauges: &GaugeVec, value| {
                let gauge = gauges.with_label_values(&[layer.name]);
                gauge.set(Figure::exact(value));
            };
            of(&self.in_force, layer.in_force.into());
            of(&self.not_programmed, layer.not_programmed as u64);
        }
    }

    /// The sync or comparison of a layer failed as a whole.
    pub(super) fn failed(&self, layer: &str) {
        self.failures.with_label_values(&[layer]).inc();
    }

    /// So many differences were mended in a layer.
    pub(super) fn repaired(&self, layer: &str, differences: usize) {
        let counter = self.repairs.with_label_values(&[layer]);
        counter.inc_by(Figure::exact(differences as u64));
    }
}
