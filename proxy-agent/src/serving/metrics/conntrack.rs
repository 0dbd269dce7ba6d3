//! Cleaning of the kernel's connection tracking, as kube-proxy counts it. Made before anything is
//! served: the backend that cleans is opened first.

use std::time::Duration;

use prometheus::{CounterVec, HistogramOpts, HistogramVec, Opts, Registry};
use proxy_model::{Figure, IpFamily};

use super::{
    FAMILIES,
    definitions::{self as define, CONNTRACK_DELETED, CONNTRACK_DURATION},
};

/// What was counted; clones count together.
#[derive(Debug, Clone)]
pub struct Conntrack {
    deleted: CounterVec,
    duration: HistogramVec,
}

impl Conntrack {
    /// Nothing yet.
    pub fn new() -> Self {
        let (deleted, duration) = (&CONNTRACK_DELETED, &CONNTRACK_DURATION);
        let options = HistogramOpts::new(duration.name, duration.help);
        let options = options.buckets(define::buckets(duration));
        let new = Self {
            deleted: CounterVec::new(Opts::new(deleted.name, deleted.help), deleted.labels)
                .expect("the definition is valid"),
            duration: HistogramVec::new(options, duration.labels).expect("the definition is valid"),
        };
        for family in FAMILIES {
            new.deleted.with_label_values(&[family.as_str()]);
            new.duration.with_label_values(&[family.as_str()]);
        }
        new
    }

    /// Flows of one family were looked at, and so many removed.
    pub fn cleaned(&self, family: IpFamily, deleted: usize, took: Duration) {
        let family = [family.as_str()];
        self.deleted
            .with_label_values(&family)
            .inc_by(Figure::exact(deleted as u64));
        self.duration
            .with_label_values(&family)
            .observe(took.as_secs_f64());
    }

    pub(super) fn register(&self, registry: &Registry) {
        for collector in [
            Box::new(self.deleted.clone()) as Box<dyn prometheus::core::Collector>,
            Box::new(self.duration.clone()),
        ] {
            registry
                .register(collector)
                .expect("definitions hold each name once");
        }
    }
}

impl Default for Conntrack {
    fn default() -> Self {
        Self::new()
    }
}
