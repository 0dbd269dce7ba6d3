//! How the API server is read, as figures.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use proxy_model::{Figure, FigureKind};

use super::{Counters, KindCounters, ObjectKind, Reason};

/// A count of one kind of objects: name, meaning, and where it is.
type OfKind = (&'static str, &'static str, fn(&KindCounters) -> &AtomicU64);

const OF_KINDS: [OfKind; 5] = [
    (
        "culvert_api_events_total",
        "Objects that were listed, and changes that were received",
        |counters| &counters.events,
    ),
    (
        "culvert_api_bookmarks_total",
        "Bookmarks in watches",
        |counters| &counters.bookmarks,
    ),
    (
        "culvert_api_lists_total",
        "Lists that were completed; each after the first means that a watch could not be resumed",
        |counters| &counters.lists,
    ),
    (
        "culvert_api_watches_total",
        "Watches that were started, including streaming lists",
        |counters| &counters.watches,
    ),
    (
        "culvert_api_decode_failures_total",
        "Objects that could not be decoded and were left out",
        |counters| &counters.decode_failures,
    ),
];

/// Everything, zeros too.
pub fn figures(counters: &Counters) -> Vec<Figure> {
    let mut figures = vec![
        figure(
            "culvert_api_bytes_read_total",
            FigureKind::Counter,
            "Bytes of answers, without the overhead of TLS and HTTP",
            Vec::new(),
            counters.bytes_read.load(Relaxed),
        ),
        figure(
            "culvert_api_failovers_total",
            FigureKind::Counter,
            "How often the agent switched to another API server",
            Vec::new(),
            counters.failovers.load(Relaxed),
        ),
        figure(
            "culvert_api_server",
            FigureKind::Gauge,
            "Which of the API servers is in use, from 0",
            Vec::new(),
            counters.server.load(Relaxed) as u64,
        ),
    ];
    for (name, help, count) in OF_KINDS {
        figures.extend(ObjectKind::ALL.into_iter().map(|kind| {
            let labels = vec![("kind", kind.name().to_owned())];
            let count = count(counters.kind(kind)).load(Relaxed);
            figure(name, FigureKind::Counter, help, labels, count)
        }));
    }
    figures.extend(ObjectKind::ALL.into_iter().map(|kind| {
        figure(
            "culvert_api_objects_left_out",
            FigureKind::Gauge,
            "Objects that are not served because there are more than the limit",
            vec![("kind", kind.name().to_owned())],
            counters.kind(kind).left_out.load(Relaxed),
        )
    }));
    figures.extend(ObjectKind::ALL.into_iter().map(|kind| Figure {
        name: "culvert_api_silent_seconds",
        kind: FigureKind::Gauge,
        help: "Time since the API server last sent anything about this kind, or since the start: \
               usually a minute at most, ten for a kind that the cluster does not have; the state \
               may be stale by as much",
        labels: vec![("kind", kind.name().to_owned())],
        value: counters.kind(kind).heard.ago().as_secs_f64(),
    }));
    figures.extend(Reason::ALL.into_iter().map(|reason| {
        figure(
            "culvert_api_errors_total",
            FigureKind::Counter,
            "Requests and watches that failed",
            vec![("reason", reason.name().to_owned())],
            counters.error(reason).load(Relaxed),
        )
    }));
    figures
}

fn figure(
    name: &'static str,
    kind: FigureKind,
    help: &'static str,
    labels: Vec<(&'static str, String)>,
    value: u64,
) -> Figure {
    Figure {
        name,
        kind,
        help,
        labels,
        value: Figure::exact(value),
    }
}
