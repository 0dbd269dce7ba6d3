//! Drawing: series of figures as a picture. Must not know what they are of.

use std::{collections::BTreeSet, fmt::Write as _};

use anyhow::{Context as _, Result, ensure};
use plotters::{
    backend::SVGBackend,
    chart::ChartBuilder,
    coord::Shift,
    drawing::{DrawingArea, IntoDrawingArea as _},
    element::{Circle, PathElement, Polygon},
    style::{
        Color as _, FontStyle, IntoFont as _, RGBColor, ShapeStyle, TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::{
    Chart,
    axis::{Axis, Scale},
    series::{Point, Series, Stack},
    theme,
};
use crate::sizes::Size;

/// Of a picture with one row of names.
const WIDTH: i32 = 640;
const HEIGHT: i32 = 360;
/// Between the picture's edges and what is in it.
const EDGE: i32 = 14;
/// Where the names begin, and how far one row is below the other.
const NAMES: i32 = 46;
const ROW: i32 = 20;
/// What is left of the chart: labels of values.
const LEFT: i32 = 62;
/// What is below it: sizes, and what they are.
const BELOW: i32 = 44;
/// Sizes of letters, in pixels.
const TITLE: f64 = 15.5;
const TEXT: f64 = 12.0;
/// From one series to the next where both have a point: whiskers must not hide each other.
const ASIDE: i32 = 9;
/// From the first series to the last, at most: each must stay at its size.
const SPREAD: i32 = 48;
/// Half of what a mark takes, of what ends a whisker, and of the line beside a name.
const MARK: i32 = 5;
const CAP: i32 = 4;
const DASH: i32 = 12;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Pixel = (i32, i32);

/// How a series looks. Colours and shapes are so many that no two backends have both in common
/// before there are twelve of them.
#[derive(Debug, Clone, Copy)]
struct Look {
    colour: RGBColor,
    shape: Shape,
}

/// What a point is drawn as.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Disc,
    Square,
    Triangle,
    Diamond,
}

/// A point of a series, and the ends of its whisker.
#[derive(Debug, Clone, Copy)]
struct Placed {
    at: Pixel,
    top: i32,
    bottom: i32,
}

/// The picture, as the text of a file. The same for the same series.
pub(super) fn draw(chart: &Chart, series: &[Series]) -> Result<String> {
    let rows = names(series)?;
    let shift = ROW * i32::try_from(rows.len().saturating_sub(1)).context("too many series")?;
    let height = HEIGHT + shift;
    let mut svg = String::new();
    {
        let size = (WIDTH.unsigned_abs(), height.unsigned_abs());
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&theme::LIGHT.background)?;
        area.draw_text(chart.title, &bold(), (EDGE, EDGE))?;
        for (index, row) in (0..).zip(&rows) {
            legend(&area, row, NAMES + ROW * index)?;
        }
        let under = NAMES + shift + ROW;
        area.draw_text(&unit(chart), &text(HPos::Left, VPos::Center), (EDGE, under))?;
        for (series, placed) in series.iter().zip(axes(chart.scale, series, &area, under)?) {
            line(&area, look(&series.stack), &placed)?;
        }
        area.present()?;
    }
    finished(chart.title, &svg)
}

/// What the axis of values has.
fn unit(chart: &Chart) -> String {
    let mut text = chart.asked.unit.to_owned();
    let scale = match chart.scale {
        Scale::Linear => None,
        Scale::Log => Some("logarithmic scale"),
    };
    for more in [chart.part, scale].into_iter().flatten() {
        text = format!("{text}, {more}");
    }
    text + " (point: median of the runs; whisker: least to most)"
}

/// Where a name begins, the name, and how its series looks.
type Name = (i32, String, Look);

/// Draws one row of names, each beside a piece of its line.
fn legend(area: &Area<'_>, row: &[Name], y: i32) -> Result<()> {
    for (x, name, look) in row {
        let piece = [(*x, y), (x + 2 * DASH, y)];
        area.draw(&PathElement::new(piece, stroke(look.colour, 2)))?;
        mark(area, (x + DASH, y), *look)?;
        let at = (x + 2 * DASH + MARK, y);
        area.draw_text(name, &text(HPos::Left, VPos::Center), at)?;
    }
    Ok(())
}

/// The rows of names: as many as they take.
fn names(series: &[Series]) -> Result<Vec<Vec<Name>>> {
    let mut rows = vec![Vec::new()];
    let mut x = EDGE;
    for series in series {
        let name = short(&series.stack.title());
        let width = 2 * DASH + MARK + width(&name)? + ROW;
        if x > EDGE && x + width > WIDTH {
            rows.push(Vec::new());
            x = EDGE;
        }
        if let Some(row) = rows.last_mut() {
            row.push((x, name, look(&series.stack)));
        }
        x += width;
    }
    Ok(rows)
}

/// The most letters of a name that is not ours.
const LONGEST: usize = 40;

/// What fits in a row and may stand in a document.
fn short(name: &str) -> String {
    let mut letters = name.chars().filter(|letter| !letter.is_control());
    let mut short: String = letters.by_ref().take(LONGEST).collect();
    if letters.next().is_some() {
        short.push('…');
    }
    short
}

/// About as wide as a sans-serif font has it: whoever shows the picture chooses the font.
fn width(text: &str) -> Result<i32> {
    let letters = i32::try_from(text.chars().count()).context("a name is too long")?;
    Ok(letters * 13 / 2)
}

fn look(stack: &Stack) -> Look {
    let (colour, shape) = match stack {
        Stack::Layers => (theme::LINES[0], Shape::Disc),
        Stack::Alone(place, _) => {
            let colour = theme::LINES[1 + place % (theme::LINES.len() - 1)];
            let shape = match place % 4 {
                0 => Shape::Square,
                1 => Shape::Triangle,
                2 => Shape::Diamond,
                _ => Shape::Disc,
            };
            (colour, shape)
        }
        Stack::Bare => (theme::REFERENCE, Shape::Diamond),
    };
    Look { colour, shape }
}

/// Draws the axes, and says where the points of each series belong.
fn axes(scale: Scale, series: &[Series], area: &Area<'_>, under: i32) -> Result<Vec<Vec<Placed>>> {
    let points = || series.iter().flat_map(|series| &series.points);
    let sizes: BTreeSet<Size> = points().map(|(size, _)| *size).collect();
    let values: Vec<f64> = points()
        .flat_map(|(_, point)| [point.min, point.max])
        .collect();
    let sizes: Vec<Size> = sizes.into_iter().collect();
    let mut chart = ChartBuilder::on(area)
        .margin_left(EDGE)
        .margin_right(EDGE)
        .margin_bottom(EDGE / 2)
        .margin_top(under + ROW)
        .x_label_area_size(BELOW - EDGE / 2)
        .y_label_area_size(LEFT - EDGE)
        .build_cartesian_2d(Axis::sizes(&sizes), Axis::of(scale, &values))?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(stroke(theme::LIGHT.grid, 1))
        .axis_style(stroke(theme::LIGHT.text, 1))
        .label_style(text(HPos::Left, VPos::Top))
        .x_desc("number of Services, logarithmic scale")
        .draw()?;
    let count = i32::try_from(series.len()).context("too many series")?;
    let place = |(index, series): (i32, &Series)| {
        let aside = (2 * index - (count - 1)) * ASIDE.min(SPREAD / count) / 2;
        let one = |(size, point): (&Size, &Point)| {
            let pixel = |value| chart.backend_coord(&(f64::from(size.0), value));
            let (x, median) = pixel(point.median);
            Placed {
                at: (x + aside, median),
                top: pixel(point.max).1,
                bottom: pixel(point.min).1,
            }
        };
        series.points.iter().map(one).collect()
    };
    Ok((0..).zip(series).map(place).collect())
}

/// Whiskers, what leads from point to point, and, above both, the points.
fn line(area: &Area<'_>, look: Look, placed: &[Placed]) -> Result<()> {
    let path: Vec<Pixel> = placed.iter().map(|one| one.at).collect();
    if path.len() > 1 {
        area.draw(&PathElement::new(path, stroke(look.colour, 2)))?;
    }
    for Placed {
        at: (x, _),
        top,
        bottom,
    } in placed.iter().copied()
    {
        let whisker = [
            (x - CAP, top),
            (x + CAP, top),
            (x, top),
            (x, bottom),
            (x - CAP, bottom),
            (x + CAP, bottom),
        ];
        area.draw(&PathElement::new(whisker, stroke(look.colour, 1)))?;
    }
    for one in placed {
        mark(area, one.at, look)?;
    }
    Ok(())
}

/// One point.
fn mark(area: &Area<'_>, (x, y): Pixel, Look { colour, shape }: Look) -> Result<()> {
    let polygon: &[Pixel] = match shape {
        Shape::Disc => &[],
        Shape::Square => &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
        Shape::Triangle => &[(0, -6), (6, 5), (-6, 5)],
        Shape::Diamond => &[(0, -6), (6, 0), (0, 6), (-6, 0)],
    };
    if polygon.is_empty() {
        area.draw(&Circle::new((x, y), MARK, colour.filled()))?;
    } else {
        let corners: Vec<Pixel> = polygon.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        area.draw(&Polygon::new(corners, colour.filled()))?;
    }
    Ok(())
}

fn stroke(colour: RGBColor, width: u32) -> ShapeStyle {
    colour.stroke_width(width)
}

fn text(across: HPos, down: VPos) -> TextStyle<'static> {
    font(TEXT, FontStyle::Normal).pos(Pos::new(across, down))
}

fn bold() -> TextStyle<'static> {
    font(TITLE, FontStyle::Bold).pos(Pos::new(HPos::Left, VPos::Top))
}

/// Of so many pixels: the backend divides what it is given by this.
fn font(pixels: f64, style: FontStyle) -> TextStyle<'static> {
    let font = ("sans-serif", pixels * 1.24).into_font().style(style);
    TextStyle::from(font).color(&theme::LIGHT.text)
}

/// With what the backend cannot write: words for those who hear pictures, and colours for the dark.
fn finished(title: &str, svg: &str) -> Result<String> {
    let (opening, rest) = svg.split_once('>').context("the picture is empty")?;
    ensure!(opening.starts_with("<svg "), "the picture is no SVG");
    let mut text = String::new();
    write!(
        text,
        "{opening} role=\"img\" aria-label=\"{title}\">\n{}<title>{title}</title>",
        theme::style()
    )?;
    text.push_str(rest);
    Ok(text)
}
