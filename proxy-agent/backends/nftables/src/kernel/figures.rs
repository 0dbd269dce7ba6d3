//! What is worth watching of the nftables backend.

use proxy_model::{Figure, FigureKind};

use proxy_conntrack::Cleaner;

/// What it counts.
#[derive(Debug, Default)]
pub struct Counts {
    /// Elements in the tables of both families.
    pub elements: usize,
    /// Objects that were written or removed.
    pub written: u64,
    /// Transactions that failed.
    pub failed: u64,
}

/// Every figure at its start, for the reference page.
pub fn figures_described() -> Vec<Figure> {
    figures(&Counts::default(), &Cleaner::new())
}

/// The figures, with those of cleaning conntrack.
pub(super) fn figures(counts: &Counts, cleaner: &Cleaner) -> Vec<Figure> {
    let figure = |name, kind, help, value: u64| Figure {
        name,
        kind,
        help,
        labels: Vec::new(),
        #[expect(
            clippy::cast_precision_loss,
            reason = "2^53 of anything here is out of reach"
        )]
        value: value as f64,
    };
    let mut figures = vec![
        figure(
            "elements",
            FigureKind::Gauge,
            "Elements of sets and maps in the tables of both families.",
            counts.elements as u64,
        ),
        figure(
            "written_objects_total",
            FigureKind::Counter,
            "Chains, rules, sets and elements written or removed.",
            counts.written,
        ),
        figure(
            "sync_failures_total",
            FigureKind::Counter,
            "Transactions that the kernel refused, or that could not be prepared.",
            counts.failed,
        ),
    ];
    figures.extend(cleaner.figures());
    figures
}
