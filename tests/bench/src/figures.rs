//! Figures: what was measured, and how often. Must not know how.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// A figure, as `--json` writes it and `--from` reads it. Fields are only ever added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Figure {
    /// Which bench.
    pub(super) bench: Cow<'static, str>,
    /// Under which circumstances.
    pub(super) case: String,
    /// What of it.
    pub(super) metric: String,
    /// Unit of the three numbers.
    pub(super) unit: Cow<'static, str>,
    /// Half of the runs gave less.
    pub(super) median: f64,
    /// The least of all runs.
    pub(super) min: f64,
    /// The most of all runs.
    pub(super) max: f64,
    /// How many runs.
    pub(super) runs: usize,
    /// What it should be, if that was decided.
    #[serde(skip)]
    pub(super) goal: Option<Goal>,
}

/// What a median should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    /// Whether `median` is good enough.
    pub(super) fn is_met(self, median: f64) -> bool {
        match self {
            Self::AtLeast(least) => median >= least,
            Self::AtMost(most) => median <= most,
        }
    }
}

/// The figures of one bench under way: values of each run, in the order they were first seen.
#[derive(Debug, Default)]
pub(super) struct Collected(Vec<(Name, Vec<f64>)>);

#[derive(Debug, Clone, PartialEq)]
struct Name {
    case: String,
    metric: String,
    unit: &'static str,
    goal: Option<Goal>,
}

impl Collected {
    /// Adds the value of one run.
    pub(super) fn add(&mut self, case: &str, metric: &str, unit: &'static str, value: f64) {
        self.add_with_goal(case, metric, unit, None, value);
    }

    /// Adds the value of one run of something that has a goal.
    pub(super) fn add_with_goal(
        &mut self,
        case: &str,
        metric: &str,
        unit: &'static str,
        goal: Option<Goal>,
        value: f64,
    ) {
        let name = Name {
            case: case.to_owned(),
            metric: metric.to_owned(),
            unit,
            goal,
        };
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => self.0.push((name, vec![value])),
        }
    }

    /// What the runs came to.
    pub(super) fn figures(self, bench: &'static str) -> Vec<Figure> {
        let figure = |(name, values): (Name, Vec<f64>)| Figure {
            bench: bench.into(),
            case: name.case,
            metric: name.metric,
            unit: name.unit.into(),
            median: rounded(median(&values)),
            min: rounded(values.iter().copied().fold(f64::INFINITY, f64::min)),
            max: rounded(values.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            runs: values.len(),
            goal: name.goal,
        };
        self.0.into_iter().map(figure).collect()
    }
}

/// To four digits after the point, which is more than any of it means.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// The middle of `values`, of which there must be one at least.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_come_to_median_and_spread() {
        let mut collected = Collected::default();
        for value in [3.0, 1.0, 4.0, 2.0] {
            collected.add("a", "rate", "1/s", value);
        }
        collected.add_with_goal("a", "ratio", "ratio", Some(Goal::AtLeast(0.98)), 0.5);
        let figures = collected.figures("bench");
        assert_eq!(figures.len(), 2);
        let first = &figures[0];
        assert_eq!(
            (first.median, first.min, first.max, first.runs),
            (2.5, 1.0, 4.0, 4)
        );
        let goal = figures[1].goal.unwrap();
        assert!(!goal.is_met(figures[1].median) && goal.is_met(0.98));
        assert!(Goal::AtMost(400.0).is_met(399.0) && !Goal::AtMost(400.0).is_met(401.0));
        assert_eq!(
            serde_json::to_value(first).unwrap(),
            serde_json::json!({
                "bench": "bench", "case": "a", "metric": "rate", "unit": "1/s",
                "median": 2.5, "min": 1.0, "max": 4.0, "runs": 4
            })
        );
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut collected = Collected::default();
        collected.add("10 services", "connect", "µs", 6.85);
        let figures = collected.figures("backends");
        let text = serde_json::to_string(&figures).unwrap();
        let read: Vec<Figure> = serde_json::from_str(&text).unwrap();
        assert_eq!(read, figures);
        // What later versions add says nothing to this one.
        let more = text.replacen('{', "{\"more\": [], ", 1);
        let read: Vec<Figure> = serde_json::from_str(&more).unwrap();
        assert_eq!(read, figures);
    }
}
