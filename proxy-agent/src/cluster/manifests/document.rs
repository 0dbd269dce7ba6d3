//! Bytes of a file to the values of its documents. Knows YAML and JSON, nothing of Kubernetes.

use serde_json::Value;

/// One document of a file.
#[derive(Debug, PartialEq)]
pub(super) struct Document {
    /// From 1, empty documents not counted.
    pub(super) number: usize,
    /// Its content, or what is wrong with it.
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
    };
    serde_saphyr::from_str_with_options(text, options)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(text: &str, format: Format) -> Vec<Value> {
        read(text, format)
            .into_iter()
            .map(|document| document.value.unwrap())
            .collect()
    }

    #[test]
    fn yaml_documents_are_told_apart() {
        for (name, text, expected) in [
            ("one", "a: 1\n", vec![json!({"a": 1})]),
            ("marker first", "---\na: 1\n", vec![json!({"a": 1})]),
            (
                "two",
                "a: 1\n---\na: 2\n",
                vec![json!({"a": 1}), json!({"a": 2})],
            ),
            (
                "no newline at the end",
                "a: 1\n---\na: 2",
                vec![json!({"a": 1}), json!({"a": 2})],
            ),
            (
                "content beside the marker",
                "--- {a: 1}\n--- # two\na: 2",
                vec![json!({"a": 1}), json!({"a": 2})],
            ),
            (
                "empty ones",
                "---\n# none\n---\n---\na: 1\n---\n",
                vec![json!({"a": 1})],
            ),
            (
                "directive and end marker",
                "%YAML 1.2\n---\na: 1\n...\n",
                vec![json!({"a": 1})],
            ),
            (
                "windows line ends",
                "a: 1\r\n---\r\na: 2\r\n",
                vec![json!({"a": 1}), json!({"a": 2})],
            ),
            ("byte order mark", "\u{feff}a: 1\n", vec![json!({"a": 1})]),
            (
                "dashes within a string",
                "a: |\n  ---\nb: ----\n",
                vec![json!({"a": "---\n", "b": "----"})],
            ),
            ("nothing", "", vec![]),
            ("a comment", "# nothing\n", vec![]),
        ] {
            assert_eq!(values(text, Format::Yaml), expected, "case: {name}");
        }
    }

    #[test]
    fn quoted_scalars_stay_strings() {
        let text = "a: \"80\"\nb: '443'\nc: 80\nd: \"2026-11-21T02:13:11Z\"\ne: true\nf: \"true\"\ng: null\n";
        let expected = json!({
            "a": "80", "b": "443", "c": 80, "d": "2026-11-21T02:13:11Z",
            "e": true, "f": "true", "g": null,
        });
        assert_eq!(values(text, Format::Yaml), [expected]);
    }

    #[test]
    fn a_broken_document_leaves_the_others_and_names_the_line_in_the_file() {
        let documents = read("a: 1\n---\nb: 1\nc: [1,\n---\nd: 1\n", Format::Yaml);
        assert_eq!(documents.len(), 3);
        assert!(documents[0].value.is_ok() && documents[2].value.is_ok());
        assert_eq!(documents[1].number, 2);
        let message = documents[1].value.as_ref().unwrap_err();
        assert!(message.starts_with("is not valid YAML: "), "{message}");
        assert!(
            message.contains("line 4") || message.contains("line 5"),
            "{message}"
        );
    }

    #[test]
    fn duplicate_keys_and_endless_aliases_are_errors() {
        let doubled = |level| format!("a{level}: &a{level} [*a{0}, *a{0}]\n", level - 1);
        let laughs = "a0: &a0 [x, x]\n".to_owned() + &(1..40).map(doubled).collect::<String>();
        for text in ["a: 1\na: 2\n", laughs.as_str()] {
            let [document] = read(text, Format::Yaml).try_into().unwrap();
            assert!(document.value.is_err(), "{text}");
        }
    }

    #[test]
    fn json_documents_may_follow_each_other() {
        assert_eq!(
            values("{\"a\":1}\n{\"a\":2}", Format::Json),
            [json!({"a": 1}), json!({"a": 2})]
        );
        let [broken] = read("{\"a\":\n}", Format::Json).try_into().unwrap();
        let message = broken.value.unwrap_err();
        assert!(
            message.starts_with("is not valid JSON: ") && message.contains("line 2"),
            "{message}"
        );
    }

    #[test]
    fn the_format_is_told_by_extension_then_by_content() {
        assert_eq!(Format::of(Some("json"), "a: 1"), Format::Json);
        assert_eq!(Format::of(Some("yaml"), "{}"), Format::Yaml);
        assert_eq!(Format::of(Some("yml"), "{}"), Format::Yaml);
        assert_eq!(Format::of(None, "\n{}"), Format::Json);
        assert_eq!(Format::of(Some("txt"), "a: 1"), Format::Yaml);
    }
}
