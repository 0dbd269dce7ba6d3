//! `--plot`: small charts of what the bench `backends` measured, one line per stack of layers by the
//! number of Services, for documents that people read in light and in dark.
//!
//! ```text
//! measured, or a file of `--json` ──> series ──> draw (axis, theme) ──> DIR/*.svg
//! ```

mod axis;
mod draw;
mod series;
mod theme;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use super::figures::Figure;
use axis::Scale;
use series::{Asked, BENCH};

/// A chart.
#[derive(Debug)]
struct Chart {
    file: &'static str,
    /// What is shown, in words of those who run clusters.
    title: &'static str,
    asked: Asked,
    /// What of the runs it is, where that is not all of it.
    part: Option<&'static str>,
    scale: Scale,
}

const CHARTS: [Chart; 4] = [
    Chart {
        file: "one-change.svg",
        title: "One change, until the first connection reaches the new endpoint",
        asked: Asked {
            metric: "change to first connection, p50",
            reference: None,
            unit: "ms",
        },
        part: Some("p50 of the changes"),
        scale: Scale::Linear,
    },
    Chart {
        file: "full-sync.svg",
        title: "Start, from the first request to serving",
        asked: Asked {
            metric: "cold start, from first request to programmed",
            reference: None,
            unit: "ms",
        },
        part: None,
        // From a few milliseconds to a second.
        scale: Scale::Log,
    },
    Chart {
        file: "memory.svg",
        title: "Memory of the agent when it begins to serve",
        asked: Asked {
            metric: "agent resident",
            reference: None,
            unit: "MiB",
        },
        part: None,
        scale: Scale::Linear,
    },
    Chart {
        file: "connects.svg",
        title: "One TCP connect to a ClusterIP, on the node itself",
        asked: Asked {
            metric: "connect, p50 to Service",
            reference: Some("connect, p50 to endpoint"),
            unit: "µs",
        },
        part: Some("p50 of the connects"),
        scale: Scale::Linear,
    },
];

/// A directory that charts can be written to.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes `path`, and makes sure of it: what would fail later would cost a whole run.
    pub(super) fn prepare(path: &Path) -> Result<Self> {
        let shown = path.display();
        fs::create_dir_all(path)
            .with_context(|| format!("cannot make the directory {shown} for charts"))?;
        // A file that is gone at once: earlier charts stay as they are until there are new ones.
        tempfile::tempfile_in(path).with_context(|| format!("cannot write charts to {shown}"))?;
        Ok(Self(path.to_owned()))
    }

    /// Draws all charts of `figures`, and says to `out` where they are.
    pub(super) fn fill(&self, figures: &[Figure], out: &mut impl Write) -> Result<()> {
        // All of them first: charts of two runs beside each other would mislead.
        let drawn = draw_all(figures)?;
        for (file, svg) in drawn {
            let path = self.0.join(file);
            let shown = path.display();
            fs::write(&path, svg).with_context(|| format!("cannot write {shown}"))?;
            writeln!(out, "wrote {shown}").context("cannot print what was written")?;
        }
        Ok(())
    }
}

/// What to do where there are no figures.
const ADVICE: &str = "`cargo xtask bench backends --json FILE` writes them";

/// Draws what an earlier run wrote to `file`.
pub(super) fn from_file(file: &Path, folder: &Path) -> Result<()> {
    let failed = || format!("cannot draw charts of {}", file.display());
    let text = fs::read(file)
        .with_context(|| format!("cannot read it ({ADVICE})"))
        .with_context(failed)?;
    let figures = parse(&text).with_context(failed)?;
    Folder::prepare(folder)?
        .fill(&figures, &mut io::stdout().lock())
        .with_context(failed)
}

/// Figures of `backends`, and maybe others, as `--json` writes them.
fn parse(text: &[u8]) -> Result<Vec<Figure>> {
    let figures: Vec<Figure> = serde_json::from_slice(text)
        .with_context(|| format!("these are not the figures of a run ({ADVICE})"))?;
    ensure!(
        figures.iter().any(|figure| figure.bench == BENCH),
        "there are no figures of the bench `{BENCH}` ({ADVICE})"
    );
    Ok(figures)
}

/// The files' names, and what is in them.
fn draw_all(figures: &[Figure]) -> Result<Vec<(&'static str, String)>> {
    let one = |chart: &Chart| {
        let svg = series::read(figures, &chart.asked)
            .and_then(|series| draw::draw(chart, &series))
            .with_context(|| format!("cannot draw {}", chart.file))?;
        Ok((chart.file, svg))
    };
    CHARTS.iter().map(one).collect()
}

#[cfg(test)]
mod tests;
