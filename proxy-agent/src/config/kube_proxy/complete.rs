//! Second step: every field has a value. Third step's input, `/configz`, and what is said of
//! fields that are set but not honoured, or not for all.

use std::{collections::BTreeMap, net::IpAddr};

use jiff::SignedDuration;
use serde_json::{Map, Value};

use super::{
    Notice,
    fields::{self, FIELDS, Field, FieldKind, Honoured},
    typed::{Origin, Typed},
    value::Setting,
};

/// A value for every field. The accessors take paths of the table of fields and may panic on
/// others; every use is covered by reading an empty configuration.
#[derive(Debug)]
pub(super) struct Complete(BTreeMap<&'static str, (Setting, Origin)>);

impl Complete {
    /// Fills what was not typed with defaults.
    pub(super) fn of(typed: &mut Typed) -> Self {
        let mut settings = std::mem::take(&mut typed.settings);
        settings.retain(|path, (setting, origin)| {
            let zero_is_default = fields::at(path).is_some_and(|field| field.zero_is_default);
            !(*origin == Origin::File && zero_is_default && setting.is_zero())
        });
        for field in FIELDS.iter() {
            settings
                .entry(field.path)
                .or_insert_with(|| (default_of(field), Origin::Default));
        }
        let mut complete = Self(settings);
        if matches!(complete.text("bindAddress").parse(), Ok(IpAddr::V6(_))) {
            complete.default_to("healthzBindAddress", "[::]:10256");
            complete.default_to("metricsBindAddress", "[::1]:10249");
        }
        complete
    }

    /// Another default than the table's.
    fn default_to(&mut self, path: &'static str, text: &str) {
        if self.origin(path) == Origin::Default {
            let setting = Setting::Text(text.to_owned());
            self.0.insert(path, (setting, Origin::Default));
        }
    }

    fn at(&self, path: &str) -> &(Setting, Origin) {
        self.0.get(path).expect("every field has a value")
    }

    pub(super) fn origin(&self, path: &str) -> Origin {
        self.at(path).1
    }

    pub(super) fn text(&self, path: &str) -> &str {
        match &self.at(path).0 {
            Setting::Text(text) => text,
            other => unreachable!("{path} is a string, not {other:?}"),
        }
    }

    pub(super) fn switch(&self, path: &str) -> bool {
        self.at(path).0 == Setting::Switch(true)
    }

    pub(super) fn whole(&self, path: &str) -> i32 {
        match &self.at(path).0 {
            Setting::Whole(number) => *number,
            other => unreachable!("{path} is an integer, not {other:?}"),
        }
    }

    pub(super) fn period(&self, path: &str) -> SignedDuration {
        match &self.at(path).0 {
            Setting::Period(period) => *period,
            other => unreachable!("{path} is a duration, not {other:?}"),
        }
    }

    pub(super) fn texts(&self, path: &str) -> &[String] {
        match &self.at(path).0 {
            Setting::Texts(list) => list,
            _ => &[],
        }
    }

    /// Every field that is set, has another value than its default, and decides nothing, or less than
    /// for kube-proxy.
    pub(super) fn not_honoured(&self) -> Vec<Notice> {
        let ignored = FIELDS.iter().filter_map(|field| {
            let what = match field.honoured {
                Honoured::No(why) => format!("is not honoured: {why}"),
                Honoured::Partly(of, _) => format!("is honoured {of}"),
                Honoured::Yes(_) | Honoured::Flag(_) => return None,
            };
            let (setting, origin) = self.at(field.path);
            // A free-form field has defaults within, and only logging has such fields.
            let changed = *origin != Origin::Default
                && field.kind != FieldKind::Any
                && *setting != default_of(field);
            changed.then(|| {
                let text = format!("{} {what}", setting.to_value());
                Notice::new(field.path, text)
            })
        });
        ignored.collect()
    }

    /// Everything, in the form of a file.
    pub(super) fn to_value(&self) -> Value {
        let mut top = Map::new();
        for (path, (setting, _)) in &self.0 {
            let mut section = &mut top;
            let mut names = path.split('.').peekable();
            while let Some(name) = names.next() {
                if names.peek().is_none() {
                    section.insert(name.to_owned(), setting.to_value());
                } else {
                    section = section
                        .entry(name)
                        .or_insert_with(|| Value::Object(Map::new()))
                        .as_object_mut()
                        .expect("no field is also a section");
                }
            }
        }
        Value::Object(top)
    }
}

fn default_of(field: &Field) -> Setting {
    Setting::of_text(field.kind, field.default).expect("defaults in the table have the right type")
}
