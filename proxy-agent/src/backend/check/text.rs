//! The form of `check` for people: what was found, why it matters, and what to do about it.

use std::fmt::{self, Write as _};

use super::{Check, Lacks, Requirement};

pub(super) fn render(check: &Check) -> String {
    let mut text = String::new();
    write_all(&mut text, check).expect("writing to a string cannot fail");
    text
}

fn write_all(text: &mut String, check: &Check) -> fmt::Result {
    for backend in check
        .backends
        .iter()
        .filter(|one| !one.requirements.is_empty())
    {
        writeln!(text, "The backend {} needs:\n", backend.name)?;
        let width = width(backend.requirements.iter().map(|one| one.name));
        for one in &backend.requirements {
            let Requirement { name, found, .. } = one;
            writeln!(text, "{:5} {name:width$}  {found}", mark(one))?;
            writeln!(text, "      why: {}", one.reason)?;
            if let Some(remedy) = one.remedy.as_ref().filter(|_| !one.met) {
                writeln!(text, "      do:  {remedy}")?;
            }
        }
        text.push('\n');
    }
    let more = check.backends.iter().filter(|one| one.is_spare());
    let more: Vec<_> = more.map(|one| one.name).collect();
    match check.backends.iter().find(|one| one.chosen) {
        Some(chosen) if more.is_empty() => {
            writeln!(text, "The backend {} would be used.", chosen.name)?;
        }
        Some(chosen) => writeln!(
            text,
            "The backend {} would be used, until a Service needs what it lacks: then {}.",
            chosen.name,
            more.join(", ")
        )?,
        None => writeln!(text, "No backend can be used.")?,
    }
    let width = self::width(check.backends.iter().map(|one| one.name));
    for one in &check.backends {
        if let Some(why_not) = &one.why_not {
            writeln!(text, "  {:width$}  {why_not}", one.name)?;
        }
    }
    for one in &check.backends {
        let lacks = one.lacks.as_ref().map(|Lacks(lacks)| lacks.as_slice());
        let Some(lacks @ [_, ..]) = lacks else {
            continue;
        };
        writeln!(
            text,
            "\nWhat the backend {} cannot do yet, on any host, and what therefore does not work:",
            one.name
        )?;
        let width = self::width(lacks.iter().map(|one| one.as_str()));
        for capability in lacks {
            writeln!(text, "  {capability:width$}  {}", capability.without())?;
        }
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
