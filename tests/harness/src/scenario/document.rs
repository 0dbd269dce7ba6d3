//! The text of a scenario file: an introduction and sections, written back as they were read.

use std::fmt;

use anyhow::{Context as _, Result};

/// A scenario file as text. Printing it gives the file back, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Everything before the first section.
    pub intro: String,
    /// The sections in order.
    pub sections: Vec<Section>,
}

/// A section: a line `-- HEADER --` and what follows up to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// `apply services.yaml`, `state`, …
    pub header: String,
    /// The lines below the header, each with its newline.
    pub body: String,
    /// Line number of the header, from 1; 0 for a new section.
    pub line: usize,
}

/// Understands the lines of a section's `body` whose header is on line `header`, each with its
/// number in the file; empty ones and comments are left out. `what` is what a line is called.
pub(super) fn parse_lines<T>(
    body: &str,
    header: usize,
    what: &str,
    parse: impl Fn(&str, usize) -> Result<T>,
) -> Result<Vec<T>> {
    let lines = body
        .lines()
        .enumerate()
        .map(|(index, line)| (header + 1 + index, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            parse(line, number).with_context(|| format!("line {number}: {what} {line:?}"))
        })
        .collect()
}

impl Document {
    /// Splits `text` into sections. Any text is a document.
    pub fn parse(text: &str) -> Self {
        let mut document = Self {
            intro: String::new(),
            sections: Vec::new(),
        };
        for (index, line) in text.split_inclusive('\n').enumerate() {
            let header = line
                .trim_end()
                .strip_prefix("-- ")
                .and_then(|rest| rest.strip_suffix(" --"))
                .filter(|header| !header.trim().is_empty());
            if let Some(header) = header {
                document.sections.push(Section {
                    header: header.to_owned(),
                    body: String::new(),
                    line: index + 1,
                });
            } else if let Some(section) = document.sections.last_mut() {
                section.body.push_str(line);
            } else {
                document.intro.push_str(line);
            }
        }
        document
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.intro)?;
        for section in &self.sections {
            write!(f, "-- {} --\n{}", section.header, section.body)?;
        }
        Ok(())
    }
}

impl Section {
    /// A new section, followed by an empty line.
    pub(super) fn new(header: &str, body: &str) -> Self {
        Self {
            header: header.to_owned(),
            body: format!("{}\n\n", body.trim_end()),
            line: 0,
        }
    }

    /// The first word of the header, and the rest if there is one.
    pub fn words(&self) -> (&str, Option<&str>) {
        match self.header.split_once(' ') {
            Some((kind, argument)) => (kind, Some(argument.trim())),
            None => (&self.header, None),
        }
    }

    /// Replaces the body and keeps the empty lines that end it.
    pub(super) fn replace(&mut self, body: &str) {
        let before = self.body.trim_end();
        let empty = &self.body[before.len()..];
        // Without a line of text there is none whose end is the first of these.
        let end = if before.is_empty() || empty.is_empty() {
            "\n"
        } else {
            ""
        };
        self.body = format!("{}{end}{empty}", body.trim_end());
    }
}

/// The two texts line by line: common lines indented, `-` only expected, `+` only seen.
pub fn difference(expected: &str, actual: &str) -> String {
    let expected: Vec<_> = expected.trim_end().lines().collect();
    let actual: Vec<_> = actual.trim_end().lines().collect();
    let same = |(a, b): &(&&str, &&str)| a == b;
    let head = expected.iter().zip(&actual).take_while(same).count();
    let tails = expected[head..]
        .iter()
        .rev()
        .zip(actual[head..].iter().rev());
    let tail = tails.take_while(same).count();
    let mut text = String::new();
    let mut write = |mark: char, lines: &[&str]| {
        for line in lines {
            text.extend([mark, ' ']);
            text.push_str(line);
            text.push('\n');
        }
    };
    write(' ', &expected[..head]);
    write('-', &expected[head..expected.len() - tail]);
    write('+', &actual[head..actual.len() - tail]);
    write(' ', &expected[expected.len() - tail..]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# Why.\n\n-- settings --\nnode-name: node-b\n\n-- state --\na\nb\n\n\n-- x --";

    #[test]
    fn a_document_is_written_back_as_it_was_read() {
        for text in [TEXT.to_owned() + "\n", "# only\n".to_owned(), String::new()] {
            assert_eq!(Document::parse(&text).to_string(), text);
        }
        let document = Document::parse(TEXT);
        assert_eq!(document.intro, "# Why.\n\n");
        let headers: Vec<_> = document
            .sections
            .iter()
            .map(|s| (s.header.as_str(), s.line))
            .collect();
        assert_eq!(headers, [("settings", 3), ("state", 6), ("x", 11)]);
    }

    #[test]
    fn a_replaced_body_keeps_the_empty_lines_behind_it() {
        let mut document = Document::parse(TEXT);
        document.sections[1].replace("c");
        assert_eq!(document.sections[1].body, "c\n\n\n");
        document.sections[2].replace("d\n");
        assert_eq!(document.sections[2].body, "d\n");
    }

    #[test]
    fn a_difference_marks_the_lines_between_common_ends() {
        assert_eq!(
            difference("a\nb\nc", "a\nx\ny\nc\n"),
            "  a\n- b\n+ x\n+ y\n  c\n"
        );
        assert_eq!(difference("a\na", "a"), "  a\n- a\n");
    }
}
