//! Which backends serve, as metrics: they may be others later. No series ever goes: what no longer
//! holds is 0, so that no query and no alert loses what it looks at.

use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus::{GaugeVec, IntCounter, Registry};
use proxy_model::{Capability, Figure};

use super::{
    definitions as define,
    register::{gauge, plain_counter},
};
use crate::backend::choice::{Cause, Choice};

/// What is shown of the choice.
pub(super) struct Shown {
    build: GaugeVec,
    lacks: GaugeVec,
    choice: GaugeVec,
    refused: GaugeVec,
    changes: IntCounter,
    /// All that there are.
    backends: Vec<&'static str>,
    /// The names of those in use.
    layers: Mutex<Vec<&'static str>>,
}

impl Shown {
    pub(super) fn new(registry: &Registry, chosen: &Choice, backends: &[&'static str]) -> Self {
        let shown = Self {
            build: gauge(registry, &define::BUILD),
            lacks: gauge(registry, &define::BACKEND_LACKS),
            choice: gauge(registry, &define::BACKEND_CHOICE),
            refused: gauge(registry, &define::BACKEND_REFUSED),
            changes: plain_counter(registry, &define::BACKEND_CHANGES),
            backends: backends.to_vec(),
            layers: Mutex::default(),
        };
        shown.show(chosen);
        shown
    }

    /// Another one serves.
    pub(super) fn change(&self, chosen: &Choice) {
        self.changes.inc();
        self.show(chosen);
    }

    /// What it lacks.
    pub(super) fn lacks(&self, chosen: &Choice) {
        for capability in Capability::ALL {
            let lacking = chosen.lacks.contains(&capability);
            let gauge = self.lacks.with_label_values(&[capability.as_str()]);
            gauge.set(Figure::exact(lacking.into()));
        }
    }

    fn show(&self, chosen: &Choice) {
        let mut backends = self.backends.clone();
        let mut causes = Cause::ALL.to_vec();
        if !chosen.layers.iter().any(|layer| backends.contains(layer)) {
            // A brain uses none of them, and never will.
            (backends, causes) = (chosen.layers.clone(), vec![chosen.cause]);
        }
        self.lacks(chosen);
        for backend in backends {
            let is_it = chosen.layers.contains(&backend);
            let build = [env!("CARGO_PKG_VERSION"), backend];
            self.build
                .with_label_values(&build)
                .set(Figure::exact(is_it.into()));
            for cause in &causes {
                let labels = [chosen.mode, backend, cause.as_str()];
                let holds = is_it && *cause == chosen.cause;
                self.choice
                    .with_label_values(&labels)
                    .set(Figure::exact(holds.into()));
            }
            let refused = chosen.refused.iter().any(|one| one.backend == backend);
            let gauge = self.refused.with_label_values(&[backend]);
            gauge.set(Figure::exact(refused.into()));
        }
        self.in_use().clone_from(&chosen.layers);
    }

    /// The names of those in use, the one that decides first first.
    pub(super) fn layers(&self) -> Vec<&'static str> {
        self.in_use().clone()
    }

    fn in_use(&self) -> MutexGuard<'_, Vec<&'static str>> {
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
