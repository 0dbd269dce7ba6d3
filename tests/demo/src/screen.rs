//! What the demo prints: lines that stay, and below them, on a terminal, a table that is drawn
//! again and again in the same place.
//!
//! Without a terminal there is no escape code and no live table. Must not know what is shown.

use std::io::{self, IsTerminal as _, Write as _};

use comfy_table::{CellAlignment, Table, presets};

use super::{
    cluster::STREAMS,
    traffic::{Line, Traffic},
};

/// Standard output.
#[derive(Debug)]
pub(super) struct Screen {
    live: bool,
    colour: bool,
    /// Lines of the live part that are on the terminal now.
    drawn: usize,
}

/// How a line is meant.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tone {
    Plain,
    Heading,
    Good,
    Bad,
}

impl Screen {
    pub(super) fn new() -> Self {
        let live = io::stdout().is_terminal();
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            live,
            colour: live && !no_colour,
            drawn: 0,
        }
    }

    /// Whether there is a live part.
    pub(super) fn is_live(&self) -> bool {
        self.live
    }

    /// Prints lines that stay, above the live part.
    pub(super) fn say(&mut self, tone: Tone, text: &str) -> io::Result<()> {
        let mut out = self.erased();
        for line in text.lines() {
            out.push_str(&self.painted(tone, line));
            out.push('\n');
        }
        print(&out)
    }

    /// An empty line that stays.
    pub(super) fn gap(&mut self) -> io::Result<()> {
        let out = self.erased();
        print(&(out + "\n"))
    }

    /// Draws the live part again: a table, and a line that says what is going on.
    pub(super) fn draw(&mut self, table: &str, status: &str) -> io::Result<()> {
        if !self.live {
            return Ok(());
        }
        let mut out = self.erased();
        let (rows, columns) = terminal_size();
        // A part that scrolls cannot be drawn over: the cursor cannot go back up to its start.
        let room = rows.saturating_sub(4);
        let mut lines = vec![(Tone::Plain, String::new())];
        for (index, line) in table.lines().take(room).enumerate() {
            let tone = if index == 0 {
                Tone::Heading
            } else {
                Tone::Plain
            };
            lines.push((tone, line.to_owned()));
        }
        lines.push((Tone::Plain, String::new()));
        lines.push((Tone::Plain, status.to_owned()));
        self.drawn = lines.len();
        for (tone, line) in lines {
            let cut: String = line.chars().take(columns.saturating_sub(1)).collect();
            out.push_str(&self.painted(tone, &cut));
            out.push('\n');
        }
        print(&out)
    }

    /// What takes the live part away.
    fn erased(&mut self) -> String {
        match std::mem::take(&mut self.drawn) {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\x1b[J"),
        }
    }

    fn painted(&self, tone: Tone, line: &str) -> String {
        let code = match tone {
            Tone::Plain => return line.to_owned(),
            _ if !self.colour => return line.to_owned(),
            Tone::Heading => "1",
            Tone::Good => "32",
            Tone::Bad => "1;31",
        };
        format!("\x1b[{code}m{line}\x1b[0m")
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Rows and columns of the terminal; those of the first ones if it does not say.
fn terminal_size() -> (usize, usize) {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    #[expect(
        unsafe_code,
        reason = "there is no safe call for the size of a terminal"
    )]
    // SAFETY: TIOCGWINSZ writes one `winsize` to the address given.
    let answer = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    if answer != 0 || size.ws_row == 0 || size.ws_col == 0 {
        return (24, 80);
    }
    (size.ws_row.into(), size.ws_col.into())
}

/// The table of what was sent so far, of those streams that are asked for.
pub(super) fn table(traffic: &Traffic, streams: &[usize]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header([
        "SERVICE PORT",
        "DIALLED",
        "ENDPOINT",
        "REQUESTS",
        "FAILED",
        "PER S",
    ]);
    let mut last = None;
    for line in traffic.lines() {
        if streams.contains(&line.stream) {
            let first = last.replace(line.stream) != Some(line.stream);
            table.add_row(row(&line, first.then(|| traffic.failed(line.stream))));
        }
    }
    let count = table.column_count();
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if index + 1 == count { 0 } else { 2 }));
        if index >= 3 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
        .lines()
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

/// One row; `failed` is given for the first of a stream.
fn row(line: &Line, failed: Option<u64>) -> [String; 6] {
    let stream = &STREAMS[line.stream];
    let endpoint = match line.endpoint {
        Some(endpoint) => endpoint.to_string(),
        None => "none: refused".to_owned(),
    };
    let shown = |text: String| {
        if failed.is_some() {
            text
        } else {
            String::new()
        }
    };
    [
        shown(stream.service.to_owned()),
        shown(stream.to().to_string()),
        endpoint,
        number(line.requests),
        failed.map(number).unwrap_or_default(),
        format!("{:.0}", line.per_second),
    ]
}

/// A number with its thousands set apart.
pub(super) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        for (value, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_live_part_is_taken_away_as_high_as_it_was_drawn() {
        let mut screen = Screen {
            live: true,
            colour: false,
            drawn: 0,
        };
        assert_eq!(screen.erased(), "");
        screen.drawn = 7;
        assert_eq!(screen.erased(), "\x1b[7A\x1b[J");
        assert_eq!(screen.erased(), "", "once only");
    }

    #[test]
    fn without_colour_there_is_no_escape_code() {
        let mut screen = Screen {
            live: false,
            colour: false,
            drawn: 0,
        };
        assert_eq!(screen.painted(Tone::Bad, "x"), "x");
        screen.colour = true;
        assert_eq!(screen.painted(Tone::Bad, "x"), "\x1b[1;31mx\x1b[0m");
    }
}
