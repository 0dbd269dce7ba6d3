//! Values of fields: from JSON and from the text of a flag. Knows types, no field's meaning.

use jiff::SignedDuration;
use serde_json::Value;

use proxy_backend::one_of;

use super::{
    fields::FieldKind,
    period::{self, go_text},
};

/// A value of the type that its field has.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Setting {
    Switch(bool),
    Text(String),
    Whole(i32),
    Number(f64),
    Period(SignedDuration),
    Texts(Vec<String>),
    Other(Value),
}

impl Setting {
    /// Reads what a file holds. The error completes the sentence "field: …".
    pub(super) fn of_value(kind: FieldKind, value: &Value) -> Result<Self, String> {
        let wrong = || format!("must be a {}, but is {}", named(kind), shown(value));
        match kind {
            FieldKind::Switch => value.as_bool().map(Self::Switch),
            FieldKind::Text => value.as_str().map(|text| Self::Text(text.to_owned())),
            FieldKind::Choice(words) => word(value).and_then(|text| chosen(words, text)),
            FieldKind::Whole(..) => value
                .as_i64()
                .and_then(|number| i32::try_from(number).ok())
                .map(Self::Whole),
            FieldKind::Number => value.as_f64().map(Self::Number),
            FieldKind::Period(_) => value.as_str().and_then(period::read).map(Self::Period),
            FieldKind::Texts => value.as_array().and_then(|list| {
                let texts = list.iter().map(|one| one.as_str().map(str::to_owned));
                texts.collect::<Option<_>>().map(Self::Texts)
            }),
            FieldKind::Switches => value
                .as_object()
                .filter(|map| map.values().all(Value::is_boolean))
                .map(|_| Self::Other(value.clone())),
            FieldKind::Numbers => value
                .as_object()
                .filter(|map| map.values().all(Value::is_u64))
                .map(|_| Self::Other(value.clone())),
            FieldKind::Any => Some(Self::Other(value.clone())),
        }
        .ok_or_else(|| match kind {
            FieldKind::Period(_) => wrong() + EXAMPLE,
            FieldKind::Choice(words) => {
                format!("must be {}, but is {}", choice(words), shown(value))
            }
            FieldKind::Switches => {
                of_one(value, "a boolean", Value::is_boolean).unwrap_or_else(wrong)
            }
            FieldKind::Numbers => {
                of_one(value, "a whole number", Value::is_u64).unwrap_or_else(wrong)
            }
            _ => wrong(),
        })
    }

    /// Reads what was typed after a flag, or stands in the table of fields. The error completes the
    /// sentence "flag: …".
    pub(super) fn of_text(kind: FieldKind, text: &str) -> Result<Self, String> {
        let wrong = || format!("must be a {}, but is \"{text}\"", named(kind));
        match kind {
            FieldKind::Text => Some(Self::Text(text.to_owned())),
            FieldKind::Choice(words) => chosen(words, text),
            FieldKind::Switch => text.parse().ok().map(Self::Switch),
            FieldKind::Whole(..) => text.parse().ok().map(Self::Whole),
            FieldKind::Number => text.parse().ok().map(Self::Number),
            FieldKind::Period(_) => period::read(text).map(Self::Period),
            FieldKind::Texts => {
                let list = text.split(',').filter(|one| !one.is_empty());
                Some(Self::Texts(list.map(str::to_owned).collect()))
            }
            FieldKind::Switches => switches(text).map(Self::Other),
            FieldKind::Numbers => Some(Self::Other(numbers(text))),
            FieldKind::Any => Some(Self::Other(text.into())),
        }
        .ok_or_else(|| match kind {
            FieldKind::Period(_) => wrong() + EXAMPLE,
            FieldKind::Choice(words) => format!("must be {}, but is \"{text}\"", choice(words)),
            _ => wrong(),
        })
    }

    /// Whether Go would call it the zero value of its type.
    pub(super) fn is_zero(&self) -> bool {
        match self {
            Self::Switch(on) => !on,
            Self::Text(text) => text.is_empty(),
            Self::Whole(number) => *number == 0,
            Self::Number(number) => *number == 0.0,
            Self::Period(period) => period.is_zero(),
            Self::Texts(list) => list.is_empty(),
            Self::Other(value) => match value {
                Value::Object(map) => map.is_empty(),
                Value::Array(list) => list.is_empty(),
                Value::Number(number) => number.as_i64() == Some(0),
                _ => false,
            },
        }
    }

    /// The same as another kind has it: a list where a string holds one, with commas, and the other way round.
    pub(super) fn of_kind(self, kind: FieldKind) -> Self {
        match (self, kind) {
            (Self::Texts(list), FieldKind::Text) => Self::Text(list.join(",")),
            (Self::Text(text), FieldKind::Texts) if text.is_empty() => Self::Texts(Vec::new()),
            (Self::Text(text), FieldKind::Texts) => {
                Self::Texts(text.split(',').map(str::to_owned).collect())
            }
            (same, _) => same,
        }
    }

    /// As JSON, for `/configz` and messages.
    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::Switch(on) => (*on).into(),
            Self::Text(text) => text.clone().into(),
            Self::Whole(number) => (*number).into(),
            Self::Number(number) => (*number).into(),
            Self::Period(period) => go_text(*period).into(),
            Self::Texts(list) => list.clone().into(),
            Self::Other(value) => value.clone(),
        }
    }
}

/// How messages call it, behind an article.
fn named(kind: FieldKind) -> &'static str {
    match kind {
        FieldKind::Whole(..) => "32-bit integer",
        other => other.as_str(),
    }
}

/// The words that there are.
pub(super) fn choice(words: &str) -> String {
    match words.strip_prefix('|') {
        Some(others) => one_of(&format!("empty|{others}")),
        None => one_of(words),
    }
}

/// One of `words`; empty means the default, as for every string.
fn chosen(words: &str, text: &str) -> Option<Setting> {
    let mut words = words.split('|');
    let known = words.find(|word| text.is_empty() || *word == text)?;
    Some(Setting::Text(known.to_owned()))
}

/// What YAML 1.1 takes for a boolean is one by the time that Helm has written it.
fn word(value: &Value) -> Option<&str> {
    match value {
        Value::Bool(true) => Some("on"),
        Value::Bool(false) => Some("off"),
        other => other.as_str(),
    }
}

const EXAMPLE: &str = "; write it like 30s, 1m30s or 250ms";

/// Names with booleans as a flag has them: `A=true,B=false`.
fn switches(text: &str) -> Option<Value> {
    let pairs = text.split(',').filter(|one| !one.is_empty());
    let pairs = pairs.map(|one| {
        let (name, on) = one.split_once('=')?;
        Some((name.to_owned(), Value::Bool(on.parse().ok()?)))
    });
    pairs.collect::<Option<_>>().map(Value::Object)
}

/// Names with numbers as a flag has them: `A=1,B=2`. What is no pair, and no number, stays as it is: each is told by
/// itself.
fn numbers(text: &str) -> Value {
    let pairs = text.split(',').filter(|one| !one.is_empty());
    let pairs = pairs.map(|one| {
        let Some((name, number)) = one.split_once('=') else {
            return (one.to_owned(), Value::Null);
        };
        let whole = number.parse::<u64>().map(Value::from);
        (name.to_owned(), whole.unwrap_or_else(|_| number.into()))
    });
    Value::Object(pairs.collect())
}

/// What is wrong with the first of some names that has another value than it must.
fn of_one(value: &Value, must: &str, is_right: impl Fn(&Value) -> bool) -> Option<String> {
    let (name, wrong) = value.as_object()?.iter().find(|(_, one)| !is_right(one))?;
    Some(format!("{name} must be {must}, but is {}", shown(wrong)))
}

/// A value as it stands in a file.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a section".to_owned(),
        scalar => scalar.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::kube_proxy::fields::MayBeZero;

    #[test]
    fn a_wrong_type_is_told_with_what_was_found() {
        let wrong = |kind, text: &str| {
            let value = serde_json::from_str(text).unwrap();
            Setting::of_value(kind, &value).unwrap_err()
        };
        assert_eq!(
            wrong(FieldKind::Switch, "\"yes\""),
            "must be a boolean, but is \"yes\""
        );
        assert_eq!(wrong(FieldKind::Text, "7"), "must be a string, but is 7");
        assert_eq!(
            wrong(FieldKind::Text, "{\"a\":1}"),
            "must be a string, but is a section"
        );
        assert_eq!(
            wrong(FieldKind::Texts, "[1]"),
            "must be a list of strings, but is a list"
        );
        assert!(
            wrong(FieldKind::Period(MayBeZero::Yes), "30")
                .starts_with("must be a duration, but is 30; write it")
        );
        assert!(
            wrong(FieldKind::Period(MayBeZero::Yes), "\"30\"")
                .starts_with("must be a duration, but is \"30\"")
        );
        assert_eq!(
            wrong(FieldKind::Whole(0, 9), "2147483648"),
            "must be a 32-bit integer, but is 2147483648"
        );
        assert!(wrong(FieldKind::Whole(0, 9), "1.5").ends_with("1.5"));
    }

    #[test]
    fn a_word_is_one_of_those_that_there_are() {
        let kind = FieldKind::Choice("auto|on|off");
        let of = |value: Value| Setting::of_value(kind, &value);
        for (typed, word) in [("off", "off"), ("", "auto")] {
            let word = Setting::Text(word.to_owned());
            assert_eq!(of(typed.into()), Ok(word.clone()));
            assert_eq!(Setting::of_text(kind, typed), Ok(word));
        }
        // As Helm writes them.
        assert_eq!(of(true.into()), Ok(Setting::Text("on".to_owned())));
        assert_eq!(of(false.into()), Ok(Setting::Text("off".to_owned())));
        let wrong = of(7.into()).unwrap_err();
        assert_eq!(wrong, "must be auto, on or off, but is 7");
        let wrong = Setting::of_text(kind, "of").unwrap_err();
        assert_eq!(wrong, "must be auto, on or off, but is \"of\"");
        let other = FieldKind::Choice("fast|slow");
        let wrong = Setting::of_value(other, &true.into()).unwrap_err();
        assert_eq!(wrong, "must be fast or slow, but is true");
    }

    #[test]
    fn lists_and_names_with_booleans_are_typed_with_commas() {
        let of = |kind, text| Setting::of_text(kind, text).unwrap().to_value().to_string();
        assert_eq!(of(FieldKind::Texts, "a,b"), r#"["a","b"]"#);
        assert_eq!(of(FieldKind::Texts, ""), "[]");
        assert_eq!(
            of(FieldKind::Switches, "A=true,B=false"),
            r#"{"A":true,"B":false}"#
        );
        assert_eq!(of(FieldKind::Numbers, "A=1,B=2,A=3"), r#"{"A":3,"B":2}"#);
        assert_eq!(of(FieldKind::Numbers, "A,B=x,"), r#"{"A":null,"B":"x"}"#);
        assert!(Setting::of_text(FieldKind::Switches, "A").is_err());
        let wrong = Setting::of_text(FieldKind::Whole(0, 9), "lots").unwrap_err();
        assert_eq!(wrong, "must be a 32-bit integer, but is \"lots\"");
        assert!(Setting::of_text(FieldKind::Switches, "A=1").is_err());
    }
}
