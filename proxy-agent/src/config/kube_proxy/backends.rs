//! Fields that mean the same as a flag of a backend. A backend says with its flag which field that is
//! (`Flag::field`); type, default, what is given and what is wrong with it follow from there, and no
//! backend is named here.

use std::ffi::OsString;

use proxy_backend::{BackendKind, Flag, Given, Takes};

use super::{
    complete::Complete,
    fields::{self, Field, FieldKind, Honoured},
    typed::Origin,
};

/// The flags of `all` that have a field, with its path.
fn flags(all: &[BackendKind]) -> impl Iterator<Item = (&'static Flag, &'static str)> {
    let flags = all.iter().flat_map(|kind| kind.flags());
    flags.filter_map(|flag| Some((flag, flag.field?)))
}

/// The fields of `all`.
pub(super) fn fields(all: &[BackendKind]) -> impl Iterator<Item = Field> {
    flags(all).map(|(flag, path)| {
        let (kind, default) = match flag.takes {
            Takes::Nothing | Takes::Switch => (FieldKind::Switch, "false"),
            Takes::Choice(words) => {
                let default = words.split('|').next().unwrap_or_default();
                (FieldKind::Choice(words), default)
            }
            Takes::Text { default, .. } => (FieldKind::Text, default),
            Takes::Path(_) => (FieldKind::Text, ""),
            Takes::Texts(_) => (FieldKind::Texts, ""),
            Takes::Numbers(_) => (FieldKind::Numbers, ""),
        };
        fields::field(path, kind, default, Honoured::Flag(flag))
    })
}

/// What the file and flags give to the flags of `all` that have a field. A flag of which neither says
/// anything is not there.
pub(super) fn given(complete: &Complete, all: &[BackendKind]) -> Given {
    let mut given = Given::default();
    for (flag, path) in flags(all) {
        if complete.origin(path) == Origin::Default {
            continue;
        }
        let values: Vec<OsString> = match flag.takes {
            Takes::Nothing if !complete.switch(path) => continue,
            Takes::Nothing => Vec::new(),
            Takes::Switch => vec![complete.switch(path).to_string().into()],
            Takes::Choice(_) | Takes::Text { .. } | Takes::Path(_) => {
                vec![complete.text(path).into()]
            }
            Takes::Texts(_) => complete.texts(path).iter().map(Into::into).collect(),
            Takes::Numbers(_) => complete.pairs(path).into_iter().map(Into::into).collect(),
        };
        given.insert(flag.name, values);
    }
    given
}

/// What is wrong with that, by field. Completes the sentence "field: …".
pub(super) fn wrong(given: &Given, all: &[BackendKind]) -> Vec<(&'static str, String)> {
    let path = |name: &str| flags(all).find(|(flag, _)| flag.name == name);
    let mistakes = BackendKind::mistakes(all, given).into_iter();
    let of_field = mistakes.filter_map(|mistake| {
        let (_, path) = path(mistake.flag)?;
        Some((path, format!("{}: {}", mistake.value, mistake.why)))
    });
    of_field.collect()
}
