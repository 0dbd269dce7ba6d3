//! From one version of the file to another: what it says, spelled as the other version does, and what that one cannot
//! say.

use std::net::IpAddr;

use serde_json::{Map, Value};

use super::{
    Notice,
    complete::{Complete, nested},
    fields::{FIELDS, FieldKind},
    section::Section,
    typed::{KIND, Origin},
    value::Setting,
    version::{Spelling, Version},
};

/// Which fields are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// What was said, and defaults that are others there.
    Said,
    /// Every field.
    All,
}

/// A file of the version `to` that means the same in the mode that is selected, and what it cannot say.
pub(super) fn convert(complete: &Complete, to: Version, extent: Extent) -> (String, Vec<Notice>) {
    let mut lost = Vec::new();
    let section = complete.section();
    let complete = &adapted(complete, section, to, &mut lost);
    let mut fields = Vec::new();
    for spelling in to.spellings() {
        let path = chosen(spelling, section);
        let setting = complete.setting(path).clone().of_kind(spelling.kind);
        for other in spelling.sets.iter().filter(|other| **other != path) {
            if complete.origin(other) != Origin::Default
                && complete.setting(other) != complete.setting(path)
            {
                let text = format!(
                    "{} is left out: {to} has one {} for all modes, and the selected one reads {path}",
                    complete.setting(other).to_value(),
                    spelling.path
                );
                lost.push(Notice::new(complete.version.spelled(other), text));
            }
        }
        let is_default = complete.origin(path) == Origin::Default
            && (setting == spelling.default() || !section.reads(path));
        if extent == Extent::Said && is_default && !is_derived(complete, path) {
            continue;
        }
        if spelling.means_default(&setting) && setting != spelling.default() {
            if section.reads(path) {
                let text = format!("{} cannot be said in a file of {to}", setting.to_value());
                lost.push(Notice::new(complete.version.spelled(path), text));
            }
            continue;
        }
        fields.push((spelling.path, setting.to_value()));
    }
    lost.extend(unsaid(complete, to));
    (file(to, fields.into_iter()), lost)
}

/// A file of the version with these fields.
pub(super) fn file<'p>(version: Version, fields: impl Iterator<Item = (&'p str, Value)>) -> String {
    let head = format!("apiVersion: {}\nkind: {KIND}\n", version.api_version());
    let fields = nested(fields);
    if fields.as_object().is_none_or(Map::is_empty) {
        return head;
    }
    head + &serde_saphyr::to_string(&fields).expect("JSON values are YAML")
}

/// The field of the table that counts where the version has one for all modes: that of the section which the mode
/// reads.
fn chosen(spelling: &Spelling, section: Section) -> &'static str {
    let of_section = spelling.sets.iter().find(|path| {
        path.split_once('.')
            .is_some_and(|(name, _)| name == section.name())
    });
    of_section.unwrap_or(&spelling.sets[0])
}

/// Whether the default of a field follows from another one, so that it is written out.
fn is_derived(complete: &Complete, path: &str) -> bool {
    matches!(path, "healthzBindAddress" | "metricsBindAddress")
        && complete.text("bindAddress").contains(':')
}

/// The same, with what one version says by one field and the other by another.
fn adapted(complete: &Complete, section: Section, to: Version, lost: &mut Vec<Notice>) -> Complete {
    let mut complete = complete.clone();
    match (complete.version, to) {
        (Version::V1Alpha1, Version::V1Alpha2) => {
            let address = complete.text("bindAddress").parse::<IpAddr>();
            if let Ok(address) = address
                && !address.is_unspecified()
            {
                complete.set("nodeIPOverride", Setting::Texts(vec![address.to_string()]));
            }
        }
        (Version::V1Alpha2, Version::V1Alpha1) => {
            if let [one] = complete.texts("nodeIPOverride") {
                let text = Setting::Text(one.clone());
                complete.set("bindAddress", text);
                complete.set("nodeIPOverride", Setting::Texts(Vec::new()));
            }
            let bits = ["iptables.masqueradeBit", "ipvs.masqueradeBit"];
            let [iptables, ipvs] = bits.map(|path| complete.whole(path));
            if section == Section::Ipvs {
                if iptables != ipvs && complete.origin(bits[0]) != Origin::Default {
                    let text = format!("{iptables} is left out: in {to}, mode ipvs reads it");
                    lost.push(Notice::new(bits[0], text));
                }
                complete.set(bits[0], Setting::Whole(ipvs));
                complete.set(bits[1], Setting::Whole(14));
            }
        }
        _ => {}
    }
    complete
}

/// What the version has no field for, as far as it decides something.
fn unsaid(complete: &Complete, to: Version) -> Vec<Notice> {
    let missing = FIELDS
        .iter()
        .filter(|field| to.spelling_of(field.path).is_none());
    let said = missing.filter(|field| {
        let default = Setting::of_text(field.kind, field.default);
        let setting = complete.setting(field.path);
        let is_elsewhere = matches!(field.path, "bindAddress")
            || field.path == "configHardFail" && *setting == Setting::Switch(false)
            || field.path == "ipvs.masqueradeBit" && complete.origin(field.path) == Origin::Default;
        complete.origin(field.path) != Origin::Default
            && !is_elsewhere
            && (default.as_ref() != Ok(setting) || field.kind == FieldKind::Switch)
    });
    said.map(|field| {
        let value = complete.setting(field.path).to_value();
        let text = format!("{value} is left out: {to} has no such field");
        Notice::new(complete.version.spelled(field.path), text)
    })
    .collect()
}
