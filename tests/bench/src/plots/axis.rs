//! Axes: up to where they go, where they have ticks, and how those read.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::sizes::Size;

/// How values are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// From zero.
    Linear,
    /// By orders of magnitude.
    Log,
}

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    scale: Scale,
    range: Range<f64>,
    ticks: Vec<f64>,
    /// From one tick to the next, where that is the same everywhere.
    step: Option<f64>,
}

/// About as many steps as fit without crowding.
const STEPS: f64 = 5.0;

impl Axis {
    /// One that has room for all of `values`, of which none is negative.
    pub(super) fn of(scale: Scale, values: &[f64]) -> Self {
        match scale {
            Scale::Linear => Self::linear(values),
            Scale::Log => Self::log(values),
        }
    }

    /// From zero, in steps of one, two or five of something, to the step above the most.
    fn linear(values: &[f64]) -> Self {
        let most = values.iter().copied().fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { 1.0 };
        let exponent = (most / STEPS).log10().floor();
        let tenth = 10_f64.powf(exponent);
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|times| times * tenth)
            .find(|step| step * STEPS >= most)
            .unwrap_or(most);
        let mut ticks = vec![0.0];
        for number in 1_u8.. {
            let tick = step * f64::from(number);
            ticks.push(tick);
            if tick >= most {
                break;
            }
        }
        let top = ticks.last().copied().unwrap_or(most);
        Self {
            scale: Scale::Linear,
            range: 0.0..top,
            ticks,
            step: Some(step),
        }
    }

    /// From the power of ten below the least to the one above the most. What is zero, and so has no
    /// place there, is drawn at the lower end.
    fn log(values: &[f64]) -> Self {
        let positive = || values.iter().copied().filter(|value| *value > 0.0);
        let least = positive().fold(f64::INFINITY, f64::min);
        let (least, most) = if least.is_finite() {
            (least, positive().fold(least, f64::max))
        } else {
            (1.0, 1.0)
        };
        let mut tick = 10_f64.powf(least.log10().floor());
        let mut ticks = vec![tick];
        while tick < most || ticks.len() < 2 {
            tick *= 10.0;
            ticks.push(tick);
        }
        Self {
            scale: Scale::Log,
            range: ticks[0]..tick,
            step: None,
            ticks,
        }
    }

    /// With a tick at each of these sizes, which are in order, and some room beside them.
    pub(super) fn sizes(sizes: &[Size]) -> Self {
        let ticks: Vec<f64> = sizes.iter().map(|size| f64::from(size.0)).collect();
        let ends = ticks.first().copied().zip(ticks.last().copied());
        let (first, last) = ends.unwrap_or((1.0, 1.0));
        // As much as looks the same on any scale; and more than nothing, if there is one size only.
        let room = (last / first).powf(0.08).max(1.2);
        Self {
            scale: Scale::Log,
            range: first / room..last * room,
            step: None,
            ticks,
        }
    }

    /// How far along the axis `value` is, from zero to one.
    fn part(&self, value: f64) -> f64 {
        let Range { start, end } = self.range;
        let value = value.clamp(start, end);
        match self.scale {
            Scale::Linear => (value - start) / (end - start),
            Scale::Log => (value / start).ln() / (end / start).ln(),
        }
    }

    /// A tick as people read it.
    fn label(&self, tick: f64) -> String {
        let decimals = decimals(self.step.unwrap_or(tick));
        grouped(&format!("{tick:.decimals$}"))
    }
}

/// What draws asks it.
impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        #[expect(clippy::cast_possible_truncation, reason = "a pixel of a picture")]
        let along = (self.part(*value) * f64::from(to - from)).round() as i32;
        from + along
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Light ones are those between ticks.
        if hint.weight().allow_light_points() {
            Vec::new()
        } else {
            self.ticks.clone()
        }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.label(*value)
    }
}

/// Digits after the point that a multiple of this, a round number, needs.
fn decimals(step: f64) -> usize {
    let mut digits = 0;
    let mut smallest = step;
    while smallest < 0.999_999 && digits < 9 {
        smallest *= 10.0;
        digits += 1;
    }
    digits
}

/// Digits before the point in groups of three: `10,000`.
fn grouped(number: &str) -> String {
    let (whole, rest) = match number.split_once('.') {
        Some((whole, rest)) => (whole, format!(".{rest}")),
        None => (number, String::new()),
    };
    let mut text = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + &rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, values: &[f64]) -> Vec<String> {
        let axis = Axis::of(scale, values);
        axis.ticks.iter().map(|tick| axis.label(*tick)).collect()
    }

    #[test]
    fn linear_axes_begin_at_zero_and_have_round_steps() {
        for (most, expected) in [
            (0.47, &["0.0", "0.1", "0.2", "0.3", "0.4", "0.5"][..]),
            (69.0, &["0", "20", "40", "60", "80"]),
            (14.94, &["0", "5", "10", "15"]),
            (0.06, &["0.00", "0.02", "0.04", "0.06"]),
            (4_600.0, &["0", "1,000", "2,000", "3,000", "4,000", "5,000"]),
            (5.0, &["0", "1", "2", "3", "4", "5"]),
            (0.0, &["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ] {
            assert_eq!(labels(Scale::Linear, &[0.0, most]), expected, "{most}");
            let axis = Axis::of(Scale::Linear, &[most]);
            assert!(axis.range.start == 0.0 && axis.range.end >= most, "{most}");
        }
    }

    #[test]
    fn axes_of_orders_of_magnitude_have_their_powers() {
        for (values, expected) in [
            (&[886.0, 4.3][..], &["1", "10", "100", "1,000"][..]),
            (&[0.05, 20.0], &["0.01", "0.1", "1", "10", "100"]),
            (&[10.0], &["10", "100"]),
            (&[0.0], &["1", "10"]),
            (&[0.0, 30.0], &["10", "100"]),
        ] {
            assert_eq!(labels(Scale::Log, values), expected, "{values:?}");
        }
    }

    #[test]
    fn values_are_where_they_belong() {
        let linear = Axis::of(Scale::Linear, &[80.0]);
        let log = Axis::of(Scale::Log, &[0.0, 10.0, 1_000.0]);
        for (axis, value, expected) in [
            (&linear, 0.0, 300),
            (&linear, 20.0, 225),
            (&linear, 80.0, 0),
            (&log, 0.0, 300),
            (&log, 10.0, 300),
            (&log, 100.0, 150),
            (&log, 1_000.0, 0),
        ] {
            assert_eq!(axis.map(&value, (300, 0)), expected, "{value} of {axis:?}");
        }
    }

    #[test]
    fn sizes_have_ticks_and_nothing_else_has() {
        for sizes in [&[10][..], &[10, 1_000, 10_000]] {
            let sizes: Vec<Size> = sizes.iter().copied().map(Size).collect();
            let axis = Axis::sizes(&sizes);
            let labels: Vec<_> = axis.ticks.iter().map(|tick| axis.label(*tick)).collect();
            let shown: Vec<_> = sizes.iter().map(Size::to_string).collect();
            assert_eq!(labels, shown);
            let all = axis.ticks.iter().map(|tick| axis.map(tick, (0, 500)));
            assert!(all.clone().all(|at| (10..=490).contains(&at)), "{axis:?}");
            assert!(all.is_sorted_by(|one, next| one + 20 < *next), "{axis:?}");
        }
    }

    #[test]
    fn digits_are_grouped() {
        let shown = ["1", "999", "1000", "1234567.25"].map(grouped);
        assert_eq!(shown, ["1", "999", "1,000", "1,234,567.25"]);
    }
}
