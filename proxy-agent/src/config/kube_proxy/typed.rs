//! First step: what was typed, in the file and in flags, with the right types. No defaults yet.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    Given, Mistake, Notice,
    fields::{self, Field},
    value::Setting,
};

/// The only version that is read.
pub const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
pub const KIND: &str = "KubeProxyConfiguration";

/// Where a setting comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Default,
    File,
    Flag(&'static str),
}

/// Settings by the path of their field.
#[derive(Debug, Default)]
pub(super) struct Typed {
    pub(super) settings: BTreeMap<&'static str, (Setting, Origin)>,
    pub(super) notices: Vec<Notice>,
    pub(super) mistakes: Vec<Mistake>,
}

impl Typed {
    /// Takes the file's text.
    pub(super) fn read_file(&mut self, text: &str) {
        let document = match self.parse(text) {
            Ok(document) => document,
            Err(text) => return self.mistakes.push(Mistake::of_file("", text)),
        };
        let Value::Object(mut top) = document else {
            let text = if document.is_null() {
                format!("is empty: it must hold a {KIND}")
            } else {
                format!("must hold a {KIND}, but holds {}", kind_of(&document))
            };
            return self.mistakes.push(Mistake::of_file("", text));
        };
        let version = top.remove("apiVersion");
        let kind = top.remove("kind");
        if let Some(text) = wrong_version(version.as_ref(), kind.as_ref()) {
            // Fields of another version mean something else: there is no use in naming them.
            return self.mistakes.push(Mistake::of_file("", text));
        }
        for (name, value) in &top {
            self.take(name, value);
        }
    }

    /// Strict first. A file that says something twice is read all the same, as kube-proxy does:
    /// what it serves must not depend on how tidy its file is. The error completes the sentence
    /// "file: …".
    fn parse(&mut self, text: &str) -> Result<Value, String> {
        use serde_saphyr::{DuplicateKeyPolicy, from_str, from_str_with_options, options};
        let said = |error: serde_saphyr::Error| {
            let text = error.without_snippet().to_string();
            format!("is not valid YAML: {}", text.trim_end())
        };
        let lenient = options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
        match from_str(text) {
            Ok(value) => Ok(value),
            Err(strict) => match from_str_with_options(text, lenient) {
                Ok(value) => {
                    let text = format!("{}; the last one counts", said(strict));
                    self.notices.push(Notice::new("", text));
                    Ok(value)
                }
                Err(_) => Err(said(strict)),
            },
        }
    }

    fn take(&mut self, path: &str, value: &Value) {
        if let Some(field) = fields::at(path) {
            if !value.is_null() {
                self.set(field, Origin::File, Setting::of_value(field.kind, value));
            }
        } else if fields::is_section(path) {
            match value {
                Value::Null => {}
                Value::Object(section) => {
                    for (name, value) in section {
                        self.take(&format!("{path}.{name}"), value);
                    }
                }
                other => {
                    let text = format!("must be a section, but is {}", kind_of(other));
                    self.mistakes.push(Mistake::of_file(path, text));
                }
            }
        } else {
            let text = "unknown field: ignored, as kube-proxy does".to_owned();
            self.notices.push(Notice::new(path, text));
        }
    }

    /// Takes a setting, or why there is none, which completes the sentence "field: …".
    fn set(&mut self, field: &'static Field, origin: Origin, setting: Result<Setting, String>) {
        match setting {
            Ok(setting) => {
                self.settings.insert(field.path, (setting, origin));
            }
            Err(text) => self.mistakes.push(Mistake::new(field.path, origin, text)),
        }
    }

    /// Takes what was given as a flag. It wins over the file, and says so where they differ.
    pub(super) fn take_flag(&mut self, given: &Given) {
        for path in given.paths {
            let field = fields::at(path).expect("flags name fields of the table");
            let setting = Setting::of_text(field.kind, &given.text);
            if let (Ok(now), Some((before, Origin::File))) = (&setting, self.settings.get(path))
                && now != before
                && !(field.zero_is_default && before.is_zero())
            {
                let text = format!(
                    "{} in the file, but --{} {} was given: the flag overrides the file",
                    before.to_value(),
                    given.flag,
                    now.to_value()
                );
                self.notices.push(Notice::new(path, text));
            }
            let failed = setting.is_err();
            self.set(field, Origin::Flag(given.flag), setting);
            if failed {
                // One flag, one mistake, however many fields it sets.
                break;
            }
        }
    }
}

/// Why a document of this version and kind cannot be used.
fn wrong_version(version: Option<&Value>, kind: Option<&Value>) -> Option<String> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind) = (text(version), text(kind));
    if version == API_VERSION && kind == KIND {
        return None;
    }
    if version.ends_with(".k8s.io/v1alpha2") && kind == KIND {
        return Some(format!(
            "apiVersion: {version} is not supported yet; write the file as {API_VERSION}"
        ));
    }
    let shown = |name, value: &str| match value {
        "" => format!("no {name}"),
        value => format!("{name} {value}"),
    };
    Some(format!(
        "has {} and {}, but must have apiVersion {API_VERSION} and kind {KIND}",
        shown("apiVersion", &version),
        shown("kind", &kind)
    ))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Array(_) => "a list",
        Value::Object(_) => "a section",
        Value::Bool(_) | Value::Number(_) | Value::String(_) => "a single value",
    }
}
