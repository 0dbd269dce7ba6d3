//! Which backend serves, as metrics: it may be another one later.

use std::sync::{Mutex, PoisonError};

use prometheus::{GaugeVec, Registry};
use proxy_model::Capability;

use super::{definitions as define, exact, register::gauge};
use crate::backend::choice::Choice;

/// What is shown of the choice.
pub(super) struct Shown {
    build: GaugeVec,
    lacks: GaugeVec,
    choice: GaugeVec,
    /// Its name.
    backend: Mutex<&'static str>,
}

impl Shown {
    pub(super) fn new(registry: &Registry, chosen: &Choice) -> Self {
        let shown = Self {
            build: gauge(registry, &define::BUILD),
            lacks: gauge(registry, &define::BACKEND_LACKS),
            choice: gauge(registry, &define::BACKEND_CHOICE),
            backend: Mutex::default(),
        };
        shown.show(chosen);
        shown
    }

    /// Nothing is left of an earlier choice.
    pub(super) fn show(&self, chosen: &Choice) {
        let backend = chosen.backend;
        self.build.reset();
        let labels = [env!("CARGO_PKG_VERSION"), backend];
        self.build.with_label_values(&labels).set(1.0);
        for capability in Capability::ALL {
            let lacking = chosen.lacks.contains(&capability);
            let gauge = self.lacks.with_label_values(&[capability.as_str()]);
            gauge.set(exact(lacking.into()));
        }
        self.choice.reset();
        let sample = |backend: &str, reason: &str, value| {
            let labels = [chosen.mode, backend, reason];
            self.choice.with_label_values(&labels).set(value);
        };
        sample(backend, &chosen.reason, 1.0);
        for refused in &chosen.refused {
            sample(refused.backend, &refused.reason, 0.0);
        }
        *self.backend.lock().unwrap_or_else(PoisonError::into_inner) = backend;
    }

    /// What stands before the names of the backend's own figures.
    pub(super) fn prefix(&self) -> String {
        format!("culvert_{}_", self.backend())
    }

    /// Its name.
    pub(super) fn backend(&self) -> &'static str {
        *self.backend.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
