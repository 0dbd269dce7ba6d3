//! Answers cut into pieces at every place.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Pushes `bytes` in pieces of `size`.
fn lines(bytes: &[u8], size: usize) -> (Vec<String>, bool) {
    let mut lines = Lines::default();
    let mut found = Vec::new();
    for piece in bytes.chunks(size) {
        let mut each = |line: &[u8]| {
            found.push(String::from_utf8(line.to_vec()).unwrap());
            Ok(())
        };
        lines.push(piece, &mut each).unwrap();
    }
    (found, lines.is_between_lines())
}

fn items(bytes: &[u8], size: usize) -> Result<(Vec<Value>, Value), Failure> {
    let mut items = Items::default();
    let mut found = Vec::new();
    for piece in bytes.chunks(size) {
        let mut each = |item: &[u8]| {
            found.push(serde_json::from_slice(item).unwrap());
            Ok(())
        };
        items.push(piece, &mut each)?;
    }
    let head = serde_json::from_slice(&items.finish()?).unwrap();
    Ok((found, head))
}

#[test]
fn lines_are_found_wherever_pieces_end() {
    let text = b"{\"a\":1}\n\n{\"b\":2}\r\n{\"c\"";
    for size in 1..=text.len() {
        let (found, complete) = lines(text, size);
        assert_eq!(found, ["{\"a\":1}", "{\"b\":2}\r"], "{size}");
        assert!(!complete);
    }
    assert_eq!(lines(b"a\n", 1), (vec!["a".to_owned()], true));
}

#[test]
fn items_are_found_wherever_pieces_end() {
    let text = br#" {"kind":"List","metadata":{"x":[1,{"items":[9]}],"resourceVersion":"7"},
        "\"items": [8], "items" : [ {"a":"]},{\"[\\"} , {"b":[1,[2]]},null, "c,]", 7 ],
        "tail":[3] } "#;
    for size in 1..=text.len() {
        let (found, head) = items(text, size).unwrap();
        assert_eq!(
            found,
            [
                json!({"a": "]},{\"[\\"}),
                json!({"b": [1, [2]]}),
                json!(null),
                json!("c,]"),
                json!(7)
            ],
            "{size}"
        );
        assert_eq!(head["metadata"]["resourceVersion"], "7");
        assert_eq!(head["items"], json!([]));
        assert_eq!(head["\"items"], json!([8]));
        assert_eq!(head["tail"], json!([3]));
    }
}

#[test]
fn a_list_may_have_no_items() {
    for text in [
        "{}",
        r#"{"items":null}"#,
        r#"{"items":[]}"#,
        r#"{"items": [ ] }"#,
    ] {
        let (found, _) = items(text.as_bytes(), 3).unwrap();
        assert!(found.is_empty(), "{text}");
    }
}

#[test]
fn a_list_that_ends_early_is_noticed() {
    let text = r#"{"metadata":{},"items":[{"a":"b"},{"c":[1]}]}"#;
    for end in 0..text.len() {
        let result = items(&text.as_bytes()[..end], 5);
        assert!(
            matches!(result, Err(Failure::BrokeOff(_))),
            "{end}: {result:?}"
        );
    }
    assert!(matches!(items(b"{}}", 9), Err(Failure::Garbled(_))));
}

#[test]
fn an_object_without_end_is_given_up() {
    let piece = vec![b'x'; 1 << 20];
    let mut lines = Lines::default();
    let mut items = Items::default();
    items.push(b"{\"items\":[\"", &mut |_| Ok(())).unwrap();
    let failure = (0..32).find_map(|_| lines.push(&piece, &mut |_| Ok(())).err());
    assert!(matches!(failure, Some(Failure::Garbled(_))));
    let failure = (0..32).find_map(|_| items.push(&piece, &mut |_| Ok(())).err());
    assert!(matches!(failure, Some(Failure::Garbled(_))));
}

#[test]
fn a_buffer_that_grew_shrinks_again() {
    let mut lines = Lines::default();
    lines.push(&vec![b'x'; 1 << 20], &mut |_| Ok(())).unwrap();
    lines.push(b"\n", &mut |_| Ok(())).unwrap();
    assert!(lines.partial.0.capacity() <= KEEP);
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<i32>().prop_map(|number| json!(number)),
        "[\\[\\]{},:\"\\\\ax]{0,6}".prop_map(|text| json!(text)),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|list| json!(list)),
            prop::collection::vec(("(items|[\"a]{1,2})", inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_list_is_taken_apart(
        before in value(),
        list in prop::collection::vec(value(), 0..6),
        size in 1_usize..40,
    ) {
        let text = json!({"before": before, "items": list}).to_string();
        let (found, head) = items(text.as_bytes(), size).unwrap();
        prop_assert_eq!(found, list);
        prop_assert_eq!(&head["before"], &before);
    }

    #[test]
    fn arbitrary_bytes_never_panic(pieces in prop::collection::vec("[\\[\\]{},:\"\\\\items ]{0,30}", 0..5)) {
        let mut items = Items::default();
        for piece in pieces {
            if items.push(piece.as_bytes(), &mut |_| Ok(())).is_err() {
                return Ok(());
            }
        }
        drop(items.finish());
    }
}
