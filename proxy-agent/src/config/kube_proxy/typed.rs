//! First step: what was typed, in the file and in flags, with the right types. No defaults yet.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    Given, MOST_TOLD, Mistake, Notice, bounded,
    document::{self, Position, below},
    fields::{self, FieldKind},
    nearest::nearest,
    value::Setting,
    version::{Spelling, Version},
};

pub const KIND: &str = "KubeProxyConfiguration";

/// Where a setting comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Default,
    File,
    Flag(&'static str),
}

/// Settings by the path of their field in the table.
#[derive(Debug, Default)]
pub(super) struct Typed {
    pub(super) settings: BTreeMap<&'static str, (Setting, Origin)>,
    /// That of the file; the oldest if there is none.
    pub(super) version: Version,
    pub(super) notices: Vec<Notice>,
    pub(super) mistakes: Vec<Mistake>,
    /// Where fields stand in the file, by how it spells them.
    positions: BTreeMap<String, Position>,
}

impl Typed {
    /// Takes the file's text.
    pub(super) fn read_file(&mut self, text: &str) {
        let document = match document::read(text) {
            Ok(document) => document,
            Err(text) => return self.mistakes.push(Mistake::of_file("", text)),
        };
        self.positions = document.positions;
        let Value::Object(mut top) = document.value else {
            let text = if document.value.is_null() {
                format!("is empty: it must hold a {KIND}")
            } else {
                format!("must hold a {KIND}, but holds {}", kind_of(&document.value))
            };
            return self.mistakes.push(Mistake::of_file("", text));
        };
        let version = top.remove("apiVersion");
        let kind = top.remove("kind");
        match version_of(version.as_ref(), kind.as_ref()) {
            Ok(version) => self.version = version,
            // Fields of another version mean something else: there is no use in naming them.
            Err(text) => return self.mistakes.push(Mistake::of_file("", text)),
        }
        if document.has_more {
            let text = "holds more than one document: only the first one counts, as for kube-proxy";
            self.notices.push(Notice::new("", text.to_owned()));
        }
        let mut unexpected = Vec::new();
        for path in document.repeated {
            let text = "stands more than once".to_owned();
            unexpected.push((path, text, "the last one counts"));
        }
        for (name, value) in &top {
            self.take(&below("", name), value, &mut unexpected);
        }
        let is_strict = self.version.is_strict() && !self.is_lenient();
        for (path, text, otherwise) in unexpected {
            if is_strict {
                let text = format!("{text}; `configHardFail: false` would make it a warning");
                self.mistakes.push(Mistake::of_file(&path, text));
            } else {
                let text = format!("{text}: {otherwise}");
                self.notices.push(Notice::new(&path, text));
            }
        }
    }

    /// Whether the file says that it may hold what is not known.
    fn is_lenient(&self) -> bool {
        let said = self.settings.get("configHardFail");
        said.is_some_and(|(setting, _)| *setting == Setting::Switch(false))
    }

    /// Takes a field, or those of a section. What nobody expects comes with what becomes of it otherwise.
    fn take(
        &mut self,
        path: &str,
        value: &Value,
        unexpected: &mut Vec<(String, String, &'static str)>,
    ) {
        if let Some(spelling) = self.version.at(path) {
            if !value.is_null() {
                self.set_from_file(spelling, value);
            }
        } else if self.version.is_section(path) {
            match value {
                Value::Null => {}
                Value::Object(section) => {
                    for (name, value) in section {
                        self.take(&below(path, name), value, unexpected);
                    }
                }
                other => {
                    let text = format!("must be a section, but is {}", kind_of(other));
                    self.mistakes.push(Mistake::of_file(path, text));
                }
            }
        } else {
            // Nobody is told of more than some.
            let text = if unexpected.len() < MOST_TOLD {
                unknown(path, self.version)
            } else {
                UNKNOWN.to_owned()
            };
            let otherwise = "ignored, as kube-proxy does";
            unexpected.push((path.to_owned(), text, otherwise));
        }
    }

    fn set_from_file(&mut self, spelling: &'static Spelling, value: &Value) {
        match Setting::of_value(spelling.kind, value) {
            Ok(Setting::Texts(list))
                if spelling.field().kind == FieldKind::Text
                    && list.iter().any(|one| one.contains(',')) =>
            {
                let text = "must be a list of strings without commas".to_owned();
                self.mistakes.push(Mistake::of_file(spelling.path, text));
            }
            Ok(setting) if spelling.means_default(&setting) => {}
            Ok(setting) => {
                for path in spelling.sets {
                    let field = fields::at(path).expect("spellings name fields of the table");
                    let setting = setting.clone().of_kind(field.kind);
                    self.settings.insert(path, (setting, Origin::File));
                }
            }
            Err(text) => self.mistakes.push(Mistake::of_file(spelling.path, text)),
        }
    }

    /// Takes what was given as a flag. It wins over the file, and says so where they differ.
    pub(super) fn take_flag(&mut self, given: &Given) {
        for path in given.paths {
            let field = fields::at(path).expect("flags name fields of the table");
            let origin = Origin::Flag(given.flag);
            let setting = match Setting::of_text(field.kind, &given.text) {
                Ok(setting) => setting,
                Err(text) => {
                    self.mistakes
                        .push(Mistake::new(self.version.spelled(path), origin, text));
                    // One flag, one mistake, however many fields it sets.
                    break;
                }
            };
            if let Some((before, Origin::File)) = self.settings.get(path)
                && setting != *before
            {
                let text = format!(
                    "{} in the file, but --{} {} was given: the flag overrides the file",
                    before.to_value(),
                    given.flag,
                    setting.to_value()
                );
                self.notices
                    .push(Notice::new(self.version.spelled(path), text));
            }
            self.settings.insert(path, (setting, origin));
        }
    }

    /// Says where fields stand, tells nothing twice, where the file has one field for several of the table, and
    /// not everything of very many.
    pub(super) fn find_positions(&mut self) {
        let positions = &self.positions;
        for mistake in self
            .mistakes
            .iter_mut()
            .filter(|mistake| mistake.flag.is_none())
        {
            mistake.at = positions.get(&mistake.field).copied();
        }
        for notice in &mut self.notices {
            notice.at = positions.get(&notice.field).copied();
        }
        let mut seen = BTreeSet::new();
        self.mistakes
            .retain(|mistake| seen.insert((mistake.field.clone(), mistake.text.clone())));
        seen.clear();
        self.notices
            .retain(|notice| seen.insert((notice.field.clone(), notice.text.clone())));
        bounded(&mut self.mistakes, |text| Mistake::of_file("", text));
        bounded(&mut self.notices, |text| Notice::new("", text));
    }
}

const UNKNOWN: &str = "unknown field";

/// What is said of a field that the version does not have.
fn unknown(path: &str, version: Version) -> String {
    let others = Version::ALL.into_iter().filter(|other| *other != version);
    let mut elsewhere = others.filter(|other| other.at(path).is_some() || other.is_section(path));
    if let Some(other) = elsewhere.next() {
        let here = other
            .at(path)
            .and_then(|there| version.spelling_of(there.sets[0]));
        return match here {
            Some(here) => format!("is a field of {other}; {version} has {}", here.path),
            None => format!("is of {other}, and {version} has no such field"),
        };
    }
    let known = version.spellings().iter().map(|spelling| spelling.path);
    match nearest(path, known) {
        Some(known) => format!("unknown field, is {known} meant?"),
        None => UNKNOWN.to_owned(),
    }
}

/// The version of a document with these; or why it cannot be used.
fn version_of(version: Option<&Value>, kind: Option<&Value>) -> Result<Version, String> {
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let (version, kind) = (text(version), text(kind));
    if let (Some(version), KIND) = (Version::of_api_version(&version), &*kind) {
        return Ok(version);
    }
    let shown = |name, value: &str| match value {
        "" => format!("no {name}"),
        value => format!("{name} {value}"),
    };
    let known = Version::ALL.map(Version::api_version);
    Err(format!(
        "has {} and {}, but must have apiVersion {} and kind {KIND}",
        shown("apiVersion", &version),
        shown("kind", &kind),
        known.join(" or ")
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
