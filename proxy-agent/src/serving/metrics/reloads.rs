//! What became of changes of the configuration file, as metrics.

use prometheus::{CounterVec, GaugeVec, Registry};
use proxy_model::Figure;

use super::{
    definitions as define,
    register::{counter, gauge},
};

const APPLIED: &str = "applied";
const RESTARTED: &str = "restarted";
const REFUSED: &str = "refused";

/// Counts them.
pub struct Reloads {
    total: CounterVec,
    successful: GaugeVec,
}

impl Reloads {
    pub(super) fn new(registry: &Registry) -> Self {
        let reloads = Self {
            total: counter(registry, &define::CONFIG_RELOADS),
            successful: gauge(registry, &define::CONFIG_LAST_RELOAD),
        };
        for result in [APPLIED, RESTARTED, REFUSED] {
            reloads.total.with_label_values(&[result]);
        }
        reloads.in_force(true);
        reloads
    }

    /// So often has this process executed itself anew before it was what it is.
    pub fn restarted(&self, times: u32) {
        let total = self.total.with_label_values(&[RESTARTED]);
        total.inc_by(times.into());
    }

    /// A change came into force while the agent serves.
    pub fn applied(&self) {
        self.total.with_label_values(&[APPLIED]).inc();
    }

    /// A change was refused.
    pub fn refused(&self) {
        self.total.with_label_values(&[REFUSED]).inc();
        self.in_force(false);
    }

    /// Whether the file, as it is now, is what is in force.
    pub fn in_force(&self, in_force: bool) {
        let gauge = self.successful.with_label_values::<&str>(&[]);
        gauge.set(Figure::exact(in_force.into()));
    }
}
