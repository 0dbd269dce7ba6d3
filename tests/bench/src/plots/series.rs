//! Series: what one chart shows, out of the figures of the bench `backends`. Must not know how it is
//! drawn.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use crate::{figures::Figure, sizes::Size};

/// The bench that charts are of.
pub(super) const BENCH: &str = "backends";
/// What it calls all layers together.
const LAYERS: &str = "layers";
/// What it calls a host that has none.
const BARE: &str = "no proxy";

/// What a chart is of.
#[derive(Debug)]
pub(super) struct Asked {
    /// Of stacks.
    pub(super) metric: &'static str,
    /// Of the host without a proxy, if that is shown.
    pub(super) reference: Option<&'static str>,
    /// Of both.
    pub(super) unit: &'static str,
}

/// Who was measured, in the order of legends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stack {
    /// All layers of the host.
    Layers,
    /// One backend alone: with its place among them, so that it looks the same in all charts.
    Alone(usize, String),
    /// A host without a proxy.
    Bare,
}

impl Stack {
    /// As documents call it.
    pub(super) fn title(&self) -> String {
        match self {
            Self::Layers => LAYERS.to_owned(),
            // Names are in lower case, and this abbreviation, which some have in theirs, is not.
            Self::Alone(_, name) => format!("{} alone", name.replace("bpf", "BPF")),
            Self::Bare => "no proxy, endpoint dialled directly".to_owned(),
        }
    }
}

/// The runs at one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

/// One line of a chart.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) stack: Stack,
    pub(super) points: BTreeMap<Size, Point>,
}

/// What there is of what is asked: an error if that is nothing.
pub(super) fn read(figures: &[Figure], asked: &Asked) -> Result<Vec<Series>> {
    let ours = figures.iter().filter(|figure| figure.bench == BENCH);
    let mut names: Vec<&str> = Vec::new();
    let mut found: BTreeMap<Stack, BTreeMap<Size, Point>> = BTreeMap::new();
    for figure in ours {
        let Some((size, name)) = parted(&figure.case) else {
            continue;
        };
        let stack = stack(name, &mut names);
        let metric = match stack {
            Stack::Bare => asked.reference,
            Stack::Layers | Stack::Alone(..) => Some(asked.metric),
        };
        if metric != Some(&*figure.metric) || figure.unit != asked.unit {
            continue;
        }
        let before = found.entry(stack).or_default().insert(size, point(figure)?);
        let Figure { case, metric, .. } = figure;
        ensure!(
            before.is_none(),
            "the figure \"{metric}\" of \"{case}\" is there twice: these are figures of two runs"
        );
    }
    let Asked { metric, unit, .. } = asked;
    ensure!(
        found.keys().any(|stack| *stack != Stack::Bare),
        "no figure \"{metric}\" in {unit} of the bench `{BENCH}` (`cargo xtask bench backends` \
         measures it)"
    );
    let series = |(stack, points)| Series { stack, points };
    Ok(found.into_iter().map(series).collect())
}

/// Size and name of "1,000 services, NAME".
fn parted(case: &str) -> Option<(Size, &str)> {
    let (size, name) = case.split_once(" services, ")?;
    let size = Size::read(size)?;
    // An axis of orders of magnitude has no place for it.
    (size.0 > 0).then_some((size, name))
}

/// Who has this name; `names` are the backends so far.
fn stack<'f>(name: &'f str, names: &mut Vec<&'f str>) -> Stack {
    match name {
        LAYERS => Stack::Layers,
        BARE => Stack::Bare,
        _ => {
            let place = names.iter().position(|known| *known == name);
            let place = place.unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            });
            Stack::Alone(place, name.to_owned())
        }
    }
}

fn point(figure: &Figure) -> Result<Point> {
    let Figure {
        case,
        metric,
        min,
        median,
        max,
        ..
    } = figure;
    ensure!(
        0.0 <= *min && min <= median && median <= max,
        "the figure \"{metric}\" of \"{case}\" cannot be: median {median}, from {min} to {max}"
    );
    Ok(Point {
        median: *median,
        min: *min,
        max: *max,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked = Asked {
        metric: "agent resident",
        reference: Some("resident of nobody"),
        unit: "MiB",
    };

    fn figure(case: &str, metric: &str, median: f64) -> Figure {
        Figure {
            bench: BENCH.into(),
            case: case.to_owned(),
            metric: metric.to_owned(),
            unit: "MiB".into(),
            median,
            min: median - 1.0,
            max: median + 1.0,
            runs: 3,
            goal: None,
        }
    }

    fn medians(series: &Series) -> Vec<(u32, f64)> {
        let points = series.points.iter();
        points.map(|(size, point)| (size.0, point.median)).collect()
    }

    #[test]
    fn figures_are_parted_by_stack_and_size() {
        let metric = ASKED.metric;
        let mut figures = vec![
            figure("10,000 services, ebpf", metric, 66.5),
            figure("10 services, no proxy", "resident of nobody", 1.0),
            figure("10 services, no proxy", metric, 99.0),
            figure("10 services, toy", metric, 5.0),
            figure("1,000 services, layers", metric, 30.0),
            figure("10 services, ebpf", metric, 14.0),
            figure(
                "10 services, ebpf",
                "agent resident after the changes",
                99.0,
            ),
            // Not of sizes as they are shown, or of none.
            figure("1000 services, ebpf", metric, 99.0),
            figure("0 services, ebpf", metric, 99.0),
            figure("one endpoint replaced", metric, 99.0),
        ];
        let mut other = figure("100 services, ebpf", metric, 99.0);
        other.bench = "api-server".into();
        figures.push(other);
        let mut other = figure("100 services, ebpf", metric, 99.0);
        other.unit = "KiB".into();
        figures.push(other);
        let series = read(&figures, &ASKED).unwrap();
        let titles: Vec<_> = series.iter().map(|one| one.stack.title()).collect();
        assert_eq!(
            titles,
            [
                "layers",
                "eBPF alone",
                "toy alone",
                "no proxy, endpoint dialled directly"
            ]
        );
        let medians: Vec<_> = series.iter().map(medians).collect();
        assert_eq!(medians[0], [(1_000, 30.0)]);
        assert_eq!(medians[1], [(10, 14.0), (10_000, 66.5)]);
        assert_eq!(medians[2], [(10, 5.0)]);
        assert_eq!(medians[3], [(10, 1.0)]);
        let point = series[2].points[&Size(10)];
        assert_eq!((point.min, point.max), (4.0, 6.0));
    }

    #[test]
    fn a_backend_has_one_place_in_all_charts() {
        let mut figures = vec![
            figure("10 services, ebpf", "something else", 1.0),
            figure("10 services, nftables", ASKED.metric, 14.0),
        ];
        let place = |figures: &[Figure]| read(figures, &ASKED).unwrap()[0].stack.clone();
        assert_eq!(place(&figures), Stack::Alone(1, "nftables".to_owned()));
        figures.remove(0);
        assert_eq!(place(&figures), Stack::Alone(0, "nftables".to_owned()));
    }

    #[test]
    fn nothing_to_show_is_an_error() {
        let bare = figure("10 services, no proxy", "resident of nobody", 1.0);
        for figures in [vec![], vec![bare]] {
            let error = read(&figures, &ASKED).unwrap_err().to_string();
            let expected = "no figure \"agent resident\" in MiB of the bench `backends`";
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn figures_that_cannot_be_are_refused() {
        let good = figure("10 services, ebpf", ASKED.metric, 14.0);
        let mut upside_down = good.clone();
        upside_down.max = 1.0;
        let negative = figure("10 services, ebpf", ASKED.metric, 0.5);
        for (figures, expected) in [
            (vec![good.clone(), good], "is there twice"),
            (vec![upside_down], "median 14, from 13 to 1"),
            (vec![negative], "median 0.5, from -0.5 to 1.5"),
        ] {
            let error = read(&figures, &ASKED).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(error.contains("\"10 services, ebpf\""), "{error}");
        }
    }
}
