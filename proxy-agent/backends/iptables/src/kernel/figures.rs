//! What is worth watching of the iptables backend.

use proxy_conntrack::Cleaner;
use proxy_model::{Figure, FigureKind, IpFamily};

use super::tables::Tables;
use crate::table::Table;

/// What it counts.
#[derive(Debug, Default)]
pub struct Counts {
    /// Chains and rules that were written.
    pub written: u64,
    /// Comparisons of all tables.
    pub whole: u64,
    /// Restores that failed.
    pub failed: u64,
    /// Restores of a change that failed.
    pub partial_failed: u64,
    /// Times that others held the lock for too long.
    pub locked: u64,
}

/// Every figure at its start, for the reference page.
pub fn figures_described() -> Vec<Figure> {
    figures(&Counts::default(), &[], &Cleaner::new())
}

/// The figures, with those of cleaning conntrack.
pub(super) fn figures(counts: &Counts, families: &[Tables], cleaner: &Cleaner) -> Vec<Figure> {
    let counter = |name, help, value| Figure {
        name,
        kind: FigureKind::Counter,
        help,
        labels: Vec::new(),
        value: Figure::exact(value),
    };
    let mut figures = vec![
        counter(
            "written_objects_total",
            "Chains and rules written or removed.",
            counts.written,
        ),
        counter(
            "comparisons_total",
            "How often all tables were read and compared.",
            counts.whole,
        ),
        counter(
            "sync_failures_total",
            "Restores of all tables that failed.",
            counts.failed,
        ),
        counter(
            "partial_restore_failures_total",
            "Restores of a change that failed: all tables were compared then.",
            counts.partial_failed,
        ),
        counter(
            "lock_timeouts_total",
            "How often others held the lock of the tables for too long.",
            counts.locked,
        ),
    ];
    let families = [IpFamily::V4, IpFamily::V6].map(|family| {
        let tables = families.iter().find(|tables| tables.family == family);
        (family, tables)
    });
    for (index, name, help) in [
        (
            0,
            "rules",
            "Rules that are ours, when all tables were last compared.",
        ),
        (1, "last_written_rules", "Rules that were written last."),
    ] {
        for (family, tables) in families {
            for table in [Table::Filter, Table::Nat] {
                let rules = tables.and_then(|tables| tables.rules.get(&table));
                figures.push(Figure {
                    name,
                    kind: FigureKind::Gauge,
                    help,
                    labels: vec![
                        ("ip_family", family.as_str().to_owned()),
                        ("table", table.name().to_owned()),
                    ],
                    value: Figure::exact(rules.map_or(0, |rules| rules[index]) as u64),
                });
            }
        }
    }
    figures.extend(cleaner.figures());
    figures
}
