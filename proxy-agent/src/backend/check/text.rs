//! The form of `check` for people: one line for what is as it should be, three for what is not.

use std::fmt::{self, Write as _};

use super::{Check, Requirement};

pub(super) fn render(check: &Check) -> String {
    let mut text = String::new();
    write_all(&mut text, check).expect("writing to a string cannot fail");
    text
}

fn write_all(text: &mut String, check: &Check) -> fmt::Result {
    let width = width(check.requirements.iter().map(|one| one.name));
    for one in &check.requirements {
        let Requirement { name, found, .. } = one;
        writeln!(text, "{:5} {name:width$}  {found}", mark(one))?;
        if !one.met {
            writeln!(text, "      why: {}", one.reason)?;
            if let Some(remedy) = &one.remedy {
                writeln!(text, "      do:  {remedy}")?;
            }
        }
    }
    match check.backends.iter().find(|one| one.chosen) {
        Some(chosen) => writeln!(text, "\nThe backend {} would be used.", chosen.name)?,
        None => writeln!(text, "\nNo backend can be used.")?,
    }
    let width = self::width(check.backends.iter().map(|one| one.name));
    for one in check.backends.iter().filter(|one| !one.chosen) {
        let why_not = one.why_not.as_deref().unwrap_or_default();
        writeln!(text, "  {:width$}  {why_not}", one.name)?;
    }
    Ok(())
}

fn mark(one: &Requirement) -> &'static str {
    match (one.met, one.required) {
        (true, _) => "ok",
        (false, true) => "NO",
        (false, false) => "note",
    }
}

fn width<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(str::len).max().unwrap_or(0)
}
