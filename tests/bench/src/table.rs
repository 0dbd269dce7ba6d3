//! The table of figures that a bench ends with.

use std::iter;

use comfy_table::{CellAlignment, Table, presets};

use super::figures::{Figure, Goal};

/// Aligned figures, with a heading for each bench and each case.
pub(super) fn render(figures: &[Figure]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["", "METRIC", "MEDIAN", "MIN", "MAX", "UNIT", "RUNS", "GOAL"]);
    for figure in figures {
        table.add_row([
            String::new(),
            figure.metric.clone(),
            number(figure.median, &figure.unit),
            number(figure.min, &figure.unit),
            number(figure.max, &figure.unit),
            figure.unit.to_string(),
            figure.runs.to_string(),
            goal(figure),
        ]);
    }
    let count = table.column_count();
    for (index, column) in table.column_iter_mut().enumerate() {
        // The first column is empty and makes room for the headings.
        column.set_padding((0, if index + 1 == count { 0 } else { 2 }));
        if (2..5).contains(&index) || index == 6 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = String::new();
    let mut last: Option<&Figure> = None;
    // The first line is the header, then there is one for each figure.
    for (line, figure) in table
        .lines()
        .zip(iter::once(None).chain(figures.iter().map(Some)))
    {
        if let Some(figure) = figure {
            let same_bench = last.is_some_and(|last| last.bench == figure.bench);
            if !same_bench {
                text.extend(["\n", &figure.bench, "\n"]);
            }
            if !same_bench || last.is_some_and(|last| last.case != figure.case) {
                text.extend([" ", &figure.case, "\n"]);
            }
            last = Some(figure);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn goal(figure: &Figure) -> String {
    let Some(goal) = figure.goal else {
        return String::new();
    };
    let wanted = match goal {
        Goal::AtLeast(least) => format!("≥ {least}"),
        Goal::AtMost(most) => format!("≤ {most}"),
    };
    let met = if goal.is_met(figure.median) {
        "met"
    } else {
        "NOT MET"
    };
    format!("{wanted} {met}")
}

fn number(value: f64, unit: &str) -> String {
    match unit {
        "ratio" => format!("{value:.3}"),
        _ if value.abs() < 100.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_judged_by_the_median() {
        let mut figure = Figure {
            bench: "tcp-connect".into(),
            case: "10 services".to_owned(),
            metric: "ratio to direct".to_owned(),
            unit: "ratio".into(),
            median: 0.99,
            min: 0.5,
            max: 1.5,
            runs: 3,
            goal: Some(Goal::AtLeast(0.98)),
        };
        assert!(render(std::slice::from_ref(&figure)).contains("≥ 0.98 met"));
        figure.median = 0.97;
        let text = render(&[figure.clone(), figure]);
        assert!(text.contains("≥ 0.98 NOT MET"), "{text}");
        assert_eq!(
            text.matches("\ntcp-connect\n 10 services\n").count(),
            1,
            "{text}"
        );
        assert_eq!(text.matches("10 services").count(), 1, "{text}");
    }
}
