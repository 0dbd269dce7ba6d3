//! The form of `check` for people: what was found, why it matters, and what to do about it.

use std::fmt::{self, Write as _};

use proxy_model::Capability;

use super::{Candidate, Check, Lacks, Requirement};
use crate::backend::choice;

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
    // What a single layer lacks follows below, with the backends.
    let Lacks(lacks) = &check.lacks;
    match check.layers.as_slice() {
        [] => writeln!(text, "No backend can be used.")?,
        layers => writeln!(text, "Mode auto would use {}.", choice::name(layers))?,
    }
    if check.layers.len() > 1 && lacks.is_empty() {
        writeln!(text, "Together they can do all that Services need.")?;
    }
    let why_not = |one: &Candidate| Some((one.name, one.why_not.clone()?));
    let not_used: Vec<_> = check.backends.iter().filter_map(why_not).collect();
    if !not_used.is_empty() {
        writeln!(text, "Not used:")?;
    }
    let width = self::width(not_used.iter().map(|(name, _)| *name));
    for (name, why) in not_used {
        writeln!(text, "  {name:width$}  {why}")?;
    }
    if check.layers.len() > 1 && !lacks.is_empty() {
        let what = "What these layers cannot do together, and what therefore does not work:";
        write_lacks(text, what, lacks)?;
    }
    for one in &check.backends {
        let lacks = one.lacks.as_ref().map(|Lacks(lacks)| lacks.as_slice());
        if let Some(lacks @ [_, ..]) = lacks {
            let what = format!("What the backend {} cannot do if it is alone:", one.name);
            write_lacks(text, &what, lacks)?;
        }
    }
    Ok(())
}

fn write_lacks(text: &mut String, what: &str, lacks: &[Capability]) -> fmt::Result {
    writeln!(text, "\n{what}")?;
    let width = width(lacks.iter().map(|one| one.as_str()));
    for capability in lacks {
        writeln!(text, "  {capability:width$}  {}", capability.without())?;
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
