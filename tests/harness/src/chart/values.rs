//! The values of the chart: what each means by the schema, and what it is by default.

use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};

use super::helm::directory;

/// A value that an operator can set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// With those above it: `image.tag`.
    pub name: String,
    /// What it may be, as the schema says.
    pub kind: String,
    /// What it is otherwise, as JSON; empty for what is left out.
    pub default: String,
    /// The description.
    pub meaning: String,
}

/// The schema.
pub fn schema() -> Result<Value> {
    let path = directory().join("values.schema.json");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))
}

/// The defaults, and their text.
fn defaults() -> Result<(Value, String)> {
    let path = directory().join("values.yaml");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let values =
        serde_saphyr::from_str(&text).with_context(|| format!("{} is not YAML", path.display()))?;
    Ok((values, text))
}

/// Every value, in the order of `values.yaml`; what has no default comes last.
pub fn rows() -> Result<Vec<Row>> {
    let (defaults, text) = defaults()?;
    let mut rows = Vec::new();
    add(&mut rows, "", &schema()?, Some(&defaults), &text)?;
    Ok(rows)
}

fn add(
    rows: &mut Vec<Row>,
    above: &str,
    schema: &Value,
    defaults: Option<&Value>,
    text: &str,
) -> Result<()> {
    let known = schema["properties"].as_object();
    let known = known.with_context(|| format!("{above} has no properties"))?;
    let depth = above.split('.').filter(|name| !name.is_empty()).count();
    for name in in_order(known, depth, text) {
        let (schema, default) = (&known[name], defaults.and_then(|all| all.get(name)));
        let path = format!("{above}{}{name}", if depth == 0 { "" } else { "." });
        if schema.get("properties").is_some() {
            let from = format!("\n{}{name}:", "  ".repeat(depth));
            let below = text.find(&from).map_or("", |at| &text[at + 1..]);
            add(rows, &path, schema, default, below)?;
            continue;
        }
        let meaning = schema["description"].as_str();
        rows.push(Row {
            kind: kind(schema),
            default: default.map(shown).unwrap_or_default(),
            meaning: meaning
                .with_context(|| format!("{path} is not described"))?
                .to_owned(),
            name: path,
        });
    }
    Ok(())
}

/// The names, as they follow one another in the text.
fn in_order<'a>(names: &'a Map<String, Value>, depth: usize, text: &str) -> Vec<&'a str> {
    let place = |name: &&str| {
        let line = format!("\n{}{name}:", "  ".repeat(depth));
        text.find(&line).unwrap_or(usize::MAX)
    };
    let mut names: Vec<&str> = names.keys().map(String::as_str).collect();
    names.sort_by_key(place);
    names
}

fn kind(schema: &Value) -> String {
    if let Some(allowed) = schema["enum"].as_array() {
        let allowed = allowed.iter().filter_map(Value::as_str);
        let allowed = allowed.filter(|one| !one.is_empty());
        return allowed
            .map(|one| format!("`{one}`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    match &schema["type"] {
        Value::Array(kinds) => {
            let kinds = kinds.iter().filter_map(Value::as_str);
            kinds.collect::<Vec<_>>().join(" or ")
        }
        kind => {
            let kind = kind.as_str().unwrap_or("any").to_owned();
            match schema["items"]["type"].as_str() {
                Some(of) => format!("{kind} of {of}s"),
                None => kind,
            }
        }
    }
}

/// An empty text, list or object is what is there when nothing is set.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => String::new(),
        Value::Array(all) if all.is_empty() => String::new(),
        Value::Object(all) if all.is_empty() => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
