//! Second step: every field of the table has a value, whatever the version. Third step's input, `/configz`, and what
//! is said of fields that are set but not honoured, or not for all.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use jiff::SignedDuration;
use serde_json::{Map, Value};

use super::{
    Notice,
    fields::{FIELDS, Field, FieldKind, Honoured, MODE, OWN_MODE},
    section::Section,
    typed::{Origin, Typed},
    value::Setting,
    version::Version,
};

/// The ports of kube-proxy.
pub(super) const HEALTHZ_PORT: u16 = 10256;
pub(super) const METRICS_PORT: u16 = 10249;
const IPVS_BIT: &str = "ipvs.masqueradeBit";

/// A value for every field of the table. The accessors take paths of the table and may panic on
/// others; every use is covered by reading an empty configuration.
#[derive(Debug, Clone)]
pub(super) struct Complete {
    settings: BTreeMap<&'static str, (Setting, Origin)>,
    /// Whose defaults they have.
    pub(super) version: Version,
}

impl Complete {
    /// Fills what was not typed with the defaults of the version.
    pub(super) fn of(typed: &mut Typed) -> Self {
        let version = typed.version;
        let mut settings = std::mem::take(&mut typed.settings);
        for field in FIELDS.iter() {
            settings
                .entry(field.path)
                .or_insert_with(|| (default_of(field, version), Origin::Default));
        }
        let mut complete = Self { settings, version };
        if matches!(complete.text("bindAddress").parse(), Ok(IpAddr::V6(_))) {
            complete.default_to("healthzBindAddress", "[::]:10256");
            complete.default_to("metricsBindAddress", "[::1]:10249");
        }
        for (path, port) in [
            ("healthzBindAddress", HEALTHZ_PORT),
            ("metricsBindAddress", METRICS_PORT),
        ] {
            complete.add_port(path, port);
        }
        if version.spelling_of(IPVS_BIT).is_none() {
            // There, IPVS has that of iptables.
            let bit = Setting::Whole(complete.whole("iptables.masqueradeBit"));
            complete.settings.insert(IPVS_BIT, (bit, Origin::Default));
        }
        complete
    }

    /// An address without a port gets one.
    fn add_port(&mut self, path: &'static str, port: u16) {
        if let Ok(ip) = self.text(path).parse::<IpAddr>() {
            let text = SocketAddr::new(ip, port).to_string();
            let origin = self.origin(path);
            self.settings.insert(path, (Setting::Text(text), origin));
        }
    }

    /// As if the file had said so.
    pub(super) fn set(&mut self, path: &'static str, setting: Setting) {
        self.settings.insert(path, (setting, Origin::File));
    }

    /// Another default than the table's.
    fn default_to(&mut self, path: &'static str, text: &str) {
        if self.origin(path) == Origin::Default {
            let setting = Setting::Text(text.to_owned());
            self.settings.insert(path, (setting, Origin::Default));
        }
    }

    fn at(&self, path: &str) -> &(Setting, Origin) {
        self.settings.get(path).expect("every field has a value")
    }

    /// The section that the mode reads.
    pub(super) fn section(&self) -> Section {
        Section::of(self.text(MODE), self.text(OWN_MODE))
    }

    /// What it holds.
    pub(super) fn setting(&self, path: &str) -> &Setting {
        &self.at(path).0
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

    /// Names with numbers, each as `NAME=NUMBER`. Of a flag, also what is none: whose flag it is says what is
    /// wrong with it.
    pub(super) fn pairs(&self, path: &str) -> Vec<String> {
        let Setting::Other(Value::Object(map)) = &self.at(path).0 else {
            return Vec::new();
        };
        let pairs = map.iter().map(|(name, number)| match number {
            Value::Null => name.clone(),
            Value::String(text) => format!("{name}={text}"),
            number => format!("{name}={number}"),
        });
        pairs.collect()
    }

    /// Every field that is set, has another value than its default, and decides nothing.
    pub(super) fn not_honoured(&self) -> Vec<Notice> {
        let ignored = FIELDS.iter().filter_map(|field| {
            let what = match field.honoured {
                Honoured::No(why) => format!("is not honoured: {why}"),
                Honoured::Yes(_) | Honoured::Flag(_) => return None,
            };
            let (setting, origin) = self.at(field.path);
            // A free-form field has defaults within, and only logging has such fields.
            let changed = *origin != Origin::Default
                && field.kind != FieldKind::Any
                && *setting != default_of(field, self.version);
            changed.then(|| {
                let text = format!("{} {what}", setting.to_value());
                Notice::new(self.version.spelled(field.path), text)
            })
        });
        ignored.collect()
    }

    /// Everything, in the form of a file of v1alpha1, which kube-proxy shows too.
    pub(super) fn to_value(&self) -> Value {
        let all = FIELDS.iter();
        let shown = all.filter(|field| field.only != Some(Version::V1Alpha2));
        nested(shown.map(|field| (field.path, self.setting(field.path).to_value())))
    }
}

/// Values by the paths of their fields, in sections.
pub(super) fn nested<'p>(fields: impl Iterator<Item = (&'p str, Value)>) -> Value {
    let mut top = Map::new();
    for (path, value) in fields {
        let (mut section, mut value) = (&mut top, Some(value));
        let mut names = path.split('.').peekable();
        while let Some(name) = names.next() {
            if names.peek().is_some() {
                section = section
                    .entry(name)
                    .or_insert_with(|| Value::Object(Map::new()))
                    .as_object_mut()
                    .expect("no field is also a section");
            } else if let Some(value) = value.take() {
                section.insert(name.to_owned(), value);
            }
        }
    }
    Value::Object(top)
}

/// What a field of the table holds where nobody says anything.
fn default_of(field: &Field, version: Version) -> Setting {
    match version.spelling_of(field.path) {
        Some(spelling) => spelling.default().of_kind(field.kind),
        None => Setting::of_text(field.kind, field.default)
            .expect("defaults in the table have the right type"),
    }
}
