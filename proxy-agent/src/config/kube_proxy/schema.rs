//! A version of the file as a JSON Schema, for editors and for checks before a file is installed. It follows from the
//! table of fields; what depends on several fields at once only reading tells.

use serde_json::{Map, Value, json};

use super::{
    fields::{FieldKind, Honoured, MayBeZero},
    typed::KIND,
    version::{Spelling, Version},
};

/// A duration as Go reads it.
const DURATION: &str = "^\\+?(0|([0-9]+(\\.[0-9]*)?|\\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$";
/// One that is not zero.
const LASTING: &str = "[1-9]";

/// The schema of a version.
pub fn schema(version: Version) -> Value {
    let mut top = section(version, "");
    let own = [
        ("apiVersion", version.api_version()),
        ("kind", KIND.to_owned()),
    ];
    for (name, value) in own {
        top["properties"][name] = json!({ "const": value });
    }
    top["required"] = json!(["apiVersion", "kind"]);
    top["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    top["title"] = format!("{KIND} {version}").into();
    top
}

/// The section at `path`; empty for the whole.
fn section(version: Version, path: &str) -> Value {
    let mut properties = Map::new();
    for spelling in version.spellings() {
        let rest = match path {
            "" => Some(spelling.path),
            path => spelling
                .path
                .strip_prefix(path)
                .and_then(|rest| rest.strip_prefix('.')),
        };
        match rest.map(|rest| rest.split_once('.')) {
            None => {}
            Some(None) => {
                let name = spelling.path.rsplit('.').next().unwrap_or_default();
                properties.insert(name.to_owned(), field(spelling));
            }
            Some(Some((name, _))) => {
                let below = [path, name].join(".");
                let below = below.trim_start_matches('.');
                properties
                    .entry(name)
                    .or_insert_with(|| section(version, below));
            }
        }
    }
    let mut section = json!({ "type": ["object", "null"], "properties": properties });
    if version.is_strict() {
        section["additionalProperties"] = false.into();
    }
    section
}

fn field(spelling: &Spelling) -> Value {
    let mut schema = of_kind(spelling);
    schema["description"] = match spelling.field().honoured {
        Honoured::Yes(what) => what.to_owned(),
        Honoured::Flag(flag) => flag.help.to_owned(),
        Honoured::No(why) => format!("Not honoured: {why}"),
    }
    .into();
    if spelling.kind != FieldKind::Any {
        schema["default"] = spelling.default().to_value();
    }
    // Absent, to kube-proxy.
    if let Some(kind) = schema["type"].as_str() {
        schema["type"] = json!([kind, "null"]);
    }
    schema
}

fn of_kind(spelling: &Spelling) -> Value {
    let zero = spelling.zero_is_default;
    match spelling.kind {
        FieldKind::Switch => json!({ "type": "boolean" }),
        FieldKind::Text => json!({ "type": "string" }),
        FieldKind::Choice(words) => {
            let mut all: Vec<Value> = words.split('|').map(Value::from).collect();
            if !all.contains(&"".into()) {
                all.push("".into());
            }
            if all.contains(&"on".into()) {
                // YAML 1.1 has them for booleans.
                all.extend([true.into(), false.into()]);
            }
            all.push(Value::Null);
            json!({ "enum": all })
        }
        FieldKind::Whole(least, most) => {
            let least = if zero { least.min(0) } else { least };
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        FieldKind::Number => json!({ "type": "number" }),
        FieldKind::Period(MayBeZero::No) if !zero => {
            json!({ "type": "string", "allOf": [{ "pattern": DURATION }, { "pattern": LASTING }] })
        }
        FieldKind::Period(_) => json!({ "type": "string", "pattern": DURATION }),
        FieldKind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        FieldKind::Switches => {
            json!({ "type": "object", "additionalProperties": { "type": "boolean" } })
        }
        FieldKind::Numbers => {
            json!({ "type": "object", "additionalProperties": { "type": "integer", "minimum": 0 } })
        }
        FieldKind::Any => json!({}),
    }
}
