//! Bytes of a file to the values of its documents. Knows YAML and JSON, nothing of Kubernetes.

use serde_json::Value;

/// One document of a file.
#[derive(Debug, PartialEq)]
pub(super) struct Document {
    /// From 1, empty documents not counted.
    pub(super) number: usize,
    /// Its content, or what is wrong with it: that completes the sentence "document: …".
    pub(super) value: Result<Value, String>,
}

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Yaml,
    Json,
}

impl Format {
    /// Told by the extension; without one of the three, by the first character.
    pub(super) fn of(extension: Option<&str>, text: &str) -> Self {
        match extension {
            Some("json") => Self::Json,
            Some("yaml" | "yml") => Self::Yaml,
            _ if text.trim_start().starts_with('{') => Self::Json,
            _ => Self::Yaml,
        }
    }
}

/// All documents. Those that follow a broken one are read too, as far as they can be told apart.
pub(super) fn read(text: &str, format: Format) -> Vec<Document> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let values: Vec<_> = match format {
        Format::Yaml => split(text).map(|part| read_yaml(&part)).collect(),
        Format::Json => serde_json::Deserializer::from_str(text)
            .into_iter()
            .map(|value| value.map_err(|error| format!("is not valid JSON: {error}")))
            .collect(),
    };
    let document = |(index, value)| Document {
        number: index + 1,
        value,
    };
    values.into_iter().enumerate().map(document).collect()
}

/// A part of a file that holds one document.
struct Part<'a> {
    text: &'a str,
    /// How many lines of the file come before it.
    lines_before: usize,
}

/// Splits at lines that begin with `---`, as `kubectl` does: YAML allows no such line within a
/// document. Documents of their own make a broken one stop no other, and bound the parser's
/// memory. Parts without content are left out.
fn split(text: &str) -> impl Iterator<Item = Part<'_>> {
    let mut starts = vec![(0, 0)];
    let mut offset = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if offset > 0 && is_separator(line) {
            starts.push((offset, number));
        }
        offset += line.len();
    }
    let ends: Vec<_> = starts
        .iter()
        .skip(1)
        .map(|&(start, _)| start)
        .chain([offset])
        .collect();
    starts
        .into_iter()
        .zip(ends)
        .map(|((start, lines_before), end)| Part {
            text: &text[start..end],
            lines_before,
        })
        .filter(|part| part.text.lines().any(has_content))
}

fn is_separator(line: &str) -> bool {
    line.strip_prefix("---")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

fn has_content(line: &str) -> bool {
    let line = if is_separator(line) { &line[3..] } else { line };
    let line = line.trim();
    !(line.is_empty() || line.starts_with(['#', '%']) || line == "...")
}

/// The error completes the sentence "document: …".
fn read_yaml(part: &Part<'_>) -> Result<Value, String> {
    parse_yaml(part.text).map_err(|error| {
        // Once more with as many lines before it as in the file, for the error to name the right
        // one: cheaper than to count lines in each message, and the good case pays nothing.
        let padded = "\n".repeat(part.lines_before) + part.text;
        let error = parse_yaml(&padded).err().unwrap_or(error);
        format!(
            "is not valid YAML: {}",
            error.without_snippet().to_string().trim_end()
        )
    })
}

fn parse_yaml(text: &str) -> Result<Value, serde_saphyr::Error> {
    // The default budget fits configuration files; ten thousand Services are larger. The limits
    // that matter against hostile files stay: depth, and what aliases may expand to.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
            max_total_comment_bytes: usize::MAX,
        },
        emit_comments: false,
        // What aliases may add to a document; machines write none, people a handful.
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 50_000 },
    };
    serde_saphyr::from_str_with_options(text, options)
}

#[cfg(test)]
mod tests;
