//! The text of a file, as YAML or JSON, to a value, and where in the text each of its parts stands. Knows no field.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{
    Deserialize,
    de::{Deserializer, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use serde_saphyr::{DuplicateKeyPolicy, Location, Spanned, options, read_with_options};

/// A line and a column of the text, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// Its first document; `Null` if it holds none.
    pub(super) value: Value,
    /// Where the key of each field stands, by the path that leads there ([`below`]). Members of lists are numbered:
    /// `list[0]`.
    pub(super) positions: BTreeMap<String, Position>,
    /// Fields that stand more than once, by their path. The last one counts.
    pub(super) repeated: BTreeSet<String>,
    /// Whether other documents follow.
    pub(super) has_more: bool,
}

/// Reads the first document. A file that says something twice is read all the same. The error completes the
/// sentence "file: …".
pub(super) fn read(text: &str) -> Result<Document, String> {
    let mut bytes = text.as_bytes();
    let lenient = options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    let mut documents = read_with_options::<_, Tree>(&mut bytes, lenient);
    let Some(first) = documents.next() else {
        return Ok(Document::default());
    };
    let first = first.map_err(|error| {
        let text = error.without_snippet().to_string();
        if text.contains(BUDGET) {
            return "is nested too deeply, or too large with its aliases written out".to_owned();
        }
        format!("is not valid YAML: {}", text.trim_end())
    })?;
    let mut document = Document::default();
    document.value = first.settle("", &mut document);
    document.has_more = documents.next().is_some();
    Ok(document)
}

/// What the library says of its limits, to programmers.
const BUDGET: &str = "budget breached";

/// The path to the field `name` of what `path` leads to: names joined by dots. One that has a dot itself is quoted: it
/// is not the path that it looks like.
pub(super) fn below(path: &str, name: &str) -> String {
    let is_plain = !name.is_empty() && !name.contains(['.', '[', '"']);
    let name = if is_plain {
        Cow::from(name)
    } else {
        format!("{name:?}").into()
    };
    match path {
        "" => name.into_owned(),
        path => format!("{path}.{name}"),
    }
}

/// A node of the text.
#[derive(Debug)]
enum Tree {
    Leaf(Value),
    List(Vec<Spanned<Tree>>),
    Section(Vec<(Spanned<String>, Tree)>),
}

impl Tree {
    /// Its value. Notes in `document` where its parts stand; `path` leads to it.
    fn settle(self, path: &str, document: &mut Document) -> Value {
        match self {
            Self::Leaf(value) => value,
            Self::List(list) => {
                let numbered = list.into_iter().enumerate();
                let settled = numbered.map(|(at, one)| {
                    let path = format!("{path}[{at}]");
                    let position = position(one.referenced);
                    document.positions.insert(path.clone(), position);
                    one.value.settle(&path, document)
                });
                settled.collect()
            }
            Self::Section(fields) => {
                let mut section = Map::new();
                for (name, tree) in fields {
                    let path = below(path, &name.value);
                    let position = position(name.referenced);
                    document.positions.insert(path.clone(), position);
                    let value = tree.settle(&path, document);
                    if section.insert(name.value, value).is_some() {
                        document.repeated.insert(path);
                    }
                }
                Value::Object(section)
            }
        }
    }
}

fn position(at: Location) -> Position {
    Position {
        line: at.line(),
        column: at.column(),
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(one) = access.next_element()? {
            list.push(one);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = access.next_entry()? {
            fields.push(field);
        }
        Ok(Tree::Section(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(document: &Document, path: &str) -> Option<(u64, u64)> {
        let position = document.positions.get(path)?;
        Some((position.line, position.column))
    }

    #[test]
    fn each_field_has_a_line_and_a_column() {
        let text =
            "---\nmode: x\n# said\niptables:\n  syncPeriod: 30s\nlist: [a,\n  b]\nnothing:\n";
        let document = read(text).unwrap();
        let value = json!({"mode": "x", "iptables": {"syncPeriod": "30s"}, "list": ["a", "b"], "nothing": null});
        assert_eq!(document.value, value);
        assert_eq!(at(&document, "mode"), Some((2, 1)));
        assert_eq!(at(&document, "iptables"), Some((4, 1)));
        assert_eq!(at(&document, "iptables.syncPeriod"), Some((5, 3)));
        assert_eq!(at(&document, "list[1]"), Some((7, 3)));
        assert_eq!(at(&document, "other"), None);
        assert!(!document.has_more);
        assert!(document.repeated.is_empty());
    }

    #[test]
    fn json_is_read_as_well() {
        let document = read("{\n  \"a\": {\"b\": [1, 1.5, true]}\n}").unwrap();
        assert_eq!(document.value, json!({"a": {"b": [1, 1.5, true]}}));
        assert_eq!(at(&document, "a.b"), Some((2, 9)));
    }

    #[test]
    fn what_is_said_twice_is_told_and_the_last_one_counts() {
        let document = read("a: 1\nb: 2\na: 3\n").unwrap();
        assert_eq!(document.value, json!({"a": 3, "b": 2}));
        assert!(document.repeated.into_iter().eq(["a"]));
        let document = read("a: {b: 1, b: 2}\nc: 1\na: {d: 1}\n").unwrap();
        assert_eq!(document.value, json!({"a": {"d": 1}, "c": 1}));
        assert!(document.repeated.into_iter().eq(["a", "a.b"]));
        // What is merged stands for what is not there.
        let merged = read("x: &x {b: 1}\na:\n  <<: *x\n  b: 2\n").unwrap();
        assert_eq!(merged.value["a"], json!({"b": 2}));
        assert!(merged.repeated.is_empty(), "{:?}", merged.repeated);
    }

    #[test]
    fn a_name_with_a_dot_is_no_path() {
        let document = read("a: {b: 1}\n\"a.b\": 2\n").unwrap();
        assert_eq!(at(&document, "a.b"), Some((1, 5)));
        assert_eq!(at(&document, "\"a.b\""), Some((2, 1)));
    }

    #[test]
    fn of_several_documents_the_first_counts() {
        for text in [
            "a: 1\n---\na: 2\n",
            "---\na: 1\n---\na: 2\n---\n[",
            "a: 1\n---\n[",
        ] {
            let document = read(text).unwrap();
            assert_eq!(document.value, json!({"a": 1}), "{text}");
            assert!(document.has_more, "{text}");
        }
        assert!(!read("a: 1\n---\n").unwrap().has_more);
        assert_eq!(read("# nothing\n").unwrap().value, Value::Null);
    }

    #[test]
    fn what_is_no_yaml_is_told_with_its_line() {
        let wrong = read("a: 1\nb: [\n").unwrap_err();
        assert!(wrong.starts_with("is not valid YAML: "), "{wrong}");
        assert!(wrong.contains("line "), "{wrong}");
        // Whatever else is wrong with it.
        let wrong = read("a: 1\na: 2\nb: [\n").unwrap_err();
        assert!(!wrong.contains("duplicate"), "{wrong}");
        let wrong = read(&"[".repeat(10_000)).unwrap_err();
        assert!(!wrong.contains("budget"), "{wrong}");
    }
}
