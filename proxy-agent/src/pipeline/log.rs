//! The log's lines about what the pipeline did and found. Their messages and fields are an
//! interface: `docs/logs.md`.

use std::time::Duration;

use proxy_model::{Change, ChangeSet, Difference, ServicePortKey};

use super::{
    reported::{ManyGaps, News, Programmed},
    summary::Synced,
};
use proxy_backend::milliseconds;

use crate::logging::list;

/// A change is in force in `layer`.
pub(super) fn synced(
    layer: &str,
    synced: &Synced,
    change: &ChangeSet,
    services: usize,
    took: Duration,
) {
    tracing::debug!(
        layer,
        upserted = synced.upserted,
        deleted = synced.deleted,
        writes = synced.writes,
        services,
        changed = %first(change.changes.iter().map(Change::key)),
        duration_ms = milliseconds(took),
        "synced"
    );
}

/// Changes came into force since this was last said.
pub(super) fn summary(synced: &Synced, services: usize) {
    tracing::info!(
        syncs = synced.syncs,
        upserted = synced.upserted,
        deleted = synced.deleted,
        writes = synced.writes,
        services,
        "changes in force"
    );
}

/// Says what was mended in `layer`; nothing, if nothing was.
pub(super) fn repaired(layer: &str, repaired: &[Difference], writes: usize, took: Duration) {
    const SHOWN: usize = 20;
    for one in repaired.iter().take(SHOWN) {
        tracing::warn!(
            layer,
            object = one.object,
            difference = one.kind.as_str(),
            wanted = one.wanted,
            found = one.found,
            "repaired"
        );
    }
    if !repaired.is_empty() {
        tracing::warn!(
            layer,
            differences = repaired.len(),
            writes,
            duration_ms = milliseconds(took),
            "kernel state repaired"
        );
    }
}

/// What `layer` could not program, and can now.
pub(super) fn programmed(layer: &str, news: Vec<Programmed>) {
    for one in news {
        match one {
            Programmed::Not(failure) => tracing::error!(
                layer,
                service = %failure.key,
                reason = failure.reason,
                "service not programmed"
            ),
            Programmed::Now(key) => {
                tracing::info!(layer, service = %key, "service programmed");
            }
        }
    }
}

pub(super) fn news(news: Vec<News>) {
    for one in news {
        match one {
            News::Diagnosed(new) => tracing::warn!(
                object = &*new.object,
                field = new.field,
                text = new.message,
                "diagnostic"
            ),
            News::Resolved(old) => tracing::info!(
                object = &*old.object,
                field = old.field,
                text = old.message,
                "diagnostic resolved"
            ),
            News::Gap(capability, key) => tracing::warn!(
                service = %key,
                capability = capability.as_str(),
                text = capability.without(),
                "capability gap"
            ),
            News::GapClosed(capability, key) => tracing::info!(
                service = %key,
                capability = capability.as_str(),
                "capability gap closed"
            ),
            News::Gaps(many) => {
                let ManyGaps {
                    capability,
                    keys,
                    open,
                } = many;
                tracing::warn!(
                    capability = capability.as_str(),
                    service_ports = keys.len(),
                    open,
                    services = %first(keys.iter()),
                    text = capability.without(),
                    "capability gaps"
                );
            }
            News::GapsClosed(many) => {
                let ManyGaps {
                    capability,
                    keys,
                    open,
                } = many;
                tracing::info!(
                    capability = capability.as_str(),
                    service_ports = keys.len(),
                    open,
                    services = %first(keys.iter()),
                    "capability gaps closed"
                );
            }
        }
    }
}

/// Names Service ports, the first few. How many there are is told beside it.
fn first<'a>(keys: impl Iterator<Item = &'a ServicePortKey>) -> String {
    const SHOWN: usize = 3;
    list(keys.take(SHOWN))
}
