//! What there is to know of one field: for `config explain`, the reference pages and whoever reads a file.

use super::{
    fields::{Field, FieldKind, Honoured, MayBeZero},
    nearest::nearest,
    value::choice,
    version::{Spelling, Version},
};

impl Spelling {
    /// What it may hold.
    pub fn allowed(&self) -> String {
        match self.kind {
            FieldKind::Choice(words) => format!("string: {}", choice(words)),
            FieldKind::Whole(least, i32::MAX) => format!("integer, at least {least}"),
            FieldKind::Whole(least, most) => format!("integer, {least} to {most}"),
            FieldKind::Period(MayBeZero::No) => "duration, longer than 0s".to_owned(),
            FieldKind::Period(MayBeZero::Yes) => "duration, 0s or longer".to_owned(),
            kind => kind.as_str().to_owned(),
        }
    }

    /// Its default, as a page has it. What zero cannot say, `null` does.
    pub fn default_text(&self) -> String {
        let default = match self.default {
            "" => "empty".to_owned(),
            default => format!("`{default}`"),
        };
        let is_boolean = self.kind == FieldKind::Switch;
        if self.zero_is_default || is_boolean {
            default
        } else {
            default + " (`null`)"
        }
    }
}

impl Field {
    /// Whether it is honoured, and what it decides; or why not.
    pub fn effect(&self) -> String {
        match self.honoured {
            Honoured::Yes(what) if self.is_instance_local() => {
                format!("yes: {what}. Instance-local: not for a file that several nodes share")
            }
            Honoured::Yes(what) => format!("yes: {what}"),
            Honoured::Flag(flag) => format!("yes, as `--{}`: {}", flag.name, flag.help),
            Honoured::No(why) => format!("no: {why}"),
        }
    }
}

/// Everything about the field or the section at `path`, as any version spells it; `flags` are those that set fields.
/// Why there is none, which completes the sentence "path: …".
pub fn explain(path: &str, flags: &[(&str, &[&str])]) -> Result<String, String> {
    let mut parts = Vec::new();
    for version in Version::ALL {
        if let Some(spelling) = version.at(path) {
            parts.push(field(version, spelling, flags));
        } else if version.is_section(path) {
            let below = version.spellings().iter().filter(|spelling| {
                let rest = spelling.path.strip_prefix(path);
                rest.is_some_and(|rest| rest.starts_with('.'))
            });
            let lines: Vec<_> = below
                .map(|spelling| format!("  {} ({})\n", spelling.path, spelling.allowed()))
                .collect();
            parts.push(format!(
                "{path}, a section of {version}\n{}",
                lines.concat()
            ));
        }
    }
    if !parts.is_empty() {
        return Ok(parts.join("\n"));
    }
    let known = Version::ALL.into_iter().flat_map(Version::spellings);
    Err(match nearest(path, known.map(|spelling| spelling.path)) {
        Some(known) => format!("no version has such a field; is {known} meant?"),
        None => "no version has such a field; `config defaults` prints all of them".to_owned(),
    })
}

fn field(version: Version, spelling: &Spelling, flags: &[(&str, &[&str])]) -> String {
    let field = spelling.field();
    let sets = |paths: &[&str]| spelling.sets.iter().all(|path| paths.contains(path));
    let mut flags: Vec<_> = flags
        .iter()
        .filter(|(_, paths)| sets(paths))
        .map(|(flag, _)| format!("--{flag}"))
        .collect();
    if let Honoured::Flag(flag) = field.honoured {
        flags.push(format!("--{}", flag.name));
    }
    let flags = match &flags[..] {
        [] => "none".to_owned(),
        all => all.join(", "),
    };
    let elsewhere: Vec<_> = Version::ALL
        .into_iter()
        .filter(|other| *other != version)
        .map(|other| {
            let there = spelling.sets.iter().map(|path| other.spelling_of(path));
            let mut there: Vec<_> = there.flatten().map(|one| one.path).collect();
            there.dedup();
            match &there[..] {
                [] => format!("not in {other}"),
                all => format!("{other}: {}", all.join(", ")),
            }
        })
        .collect();
    format!(
        "{}, a field of {version}\n  holds     {}\n  default   {}\n  flags     {flags}\n  elsewhere {}\n  \
         honoured  {}\n",
        spelling.path,
        spelling.allowed(),
        spelling.default_text(),
        elsewhere.join("; "),
        field.effect()
    )
}
