//! Texts of files to documents.

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
    let text =
        "a: \"80\"\nb: '443'\nc: 80\nd: \"2026-11-21T02:13:11Z\"\ne: true\nf: \"true\"\ng: null\n";
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

#[test]
fn a_file_may_be_large() {
    // More nodes than the parser accepts unless told otherwise: 250,000.
    let text = format!("[{}a]", "a,".repeat(250_000));
    let [document] = read(&text, Format::Yaml).try_into().unwrap();
    assert_eq!(document.value.unwrap().as_array().unwrap().len(), 250_001);
}
