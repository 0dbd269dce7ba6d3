//! A number that a backend wants watched, in a form that needs no knowledge of the backend to
//! export.

/// One number, with what an exporter must know about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Name of the metric: lower case with underscores and its unit at the end, without a prefix
    /// for the program (`map_memory_bytes`), unless it is kube-proxy's (`kubeproxy_…`). Figures of one name share
    /// `kind` and `help`.
    pub name: &'static str,
    /// Whether it only grows.
    pub kind: FigureKind,
    /// What it tells, in one sentence.
    pub help: &'static str,
    /// Names and values of labels; the same names for every figure of one name.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: f64,
}

/// How a figure behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureKind {
    /// Only grows, until the dataplane is removed.
    Counter,
    /// Goes up and down.
    Gauge,
}

impl Figure {
    /// A count as a value: exporters count in floating point, which is exact up to 2^53.
    #[expect(
        clippy::cast_precision_loss,
        reason = "2^53 of anything here is out of reach"
    )]
    pub const fn exact(count: u64) -> f64 {
        count as f64
    }
}
