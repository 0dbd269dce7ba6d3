//! Links as they lie in the pin directory, whoever made them: found by name, detached, removed.

use std::{ffi::OsString, fs};

use proxy_common::names::{LEADING_PROGRAMS, SOCKET_PROGRAMS};

use super::super::{
    pins::{self, PinError, PinPath, entries_in},
    syscalls,
};

/// What the names of all programs begin with, in every version: what is called otherwise among the
/// links is somebody else's.
const PREFIX: &str = "culvert_";

/// Ends links of programs that this version does not have, and what a crash left half made.
pub fn remove_stale(directory: &PinPath<'_>) {
    let stale = pinned(directory).map(|pins| {
        let ours = |pin: &OsString| SOCKET_PROGRAMS.iter().any(|name| pin == name);
        let stale = pins.into_iter().filter(move |pin| !ours(pin));
        stale.map(|pin| directory.join(pin))
    });
    let problems: Vec<PinError> = match stale {
        Ok(stale) => stale
            .filter_map(|pin| {
                tracing::info!(pin = %pin.display(), "detaching a link that is not of this version");
                remove(&pin).err()
            })
            .collect(),
        Err(problem) => vec![problem],
    };
    for problem in problems {
        tracing::warn!(
            reason = problem.to_string(),
            "a link that is not of this version may stay"
        );
    }
}

/// Detaches and unpins the links of every version in `directory`, last attached first. Collects
/// what failed.
pub fn detach(directory: &PinPath<'_>) -> Vec<PinError> {
    let pins = match pinned(directory) {
        Ok(pins) => pins,
        Err(problem) => return vec![problem],
    };
    let position = |pin: &OsString| SOCKET_PROGRAMS.iter().position(|name| pin == name);
    let (mut ours, others): (Vec<_>, Vec<_>) = pins
        .into_iter()
        .map(|pin| (position(&pin), pin))
        .partition(|(position, _)| position.is_some());
    ours.sort_by(|one, other| other.cmp(one));
    ours.iter()
        .chain(&others)
        .filter_map(|(_, pin)| remove(&directory.join(pin)).err())
        .collect()
}

/// Detaches and unpins the links of [`LEADING_PROGRAMS`] in `directory`, last attached first. Returns
/// how many there were.
pub fn stop_leading(directory: &PinPath<'_>) -> Result<usize, PinError> {
    let pins = LEADING_PROGRAMS.iter().rev();
    let pins: Vec<_> = pins.map(|name| directory.join(name)).collect();
    let there = pins.iter().filter(|pin| pin.exists());
    there
        .map(remove)
        .try_fold(0, |count, one| one.map(|()| count + 1))
}

/// What is pinned in `directory` under a name that Culvert gives, sorted.
fn pinned(directory: &PinPath<'_>) -> Result<Vec<OsString>, PinError> {
    let entries = entries_in(directory)?;
    let files = entries
        .iter()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let names = files.map(fs::DirEntry::file_name);
    let ours = names.filter(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    Ok(ours.collect())
}

/// Detaches and unpins a link. When this returns, its program runs no more; where this process may not
/// open it (without `CAP_BPF`), a moment later.
pub fn remove(pin: &PinPath<'_>) -> Result<(), PinError> {
    if let Ok(link) = syscalls::open_pinned(pin.as_ref()) {
        syscalls::detach(&link).map_err(|error| PinError::Refused {
            what: "detaching link",
            path: pin.shown().to_owned(),
            error,
        })?;
    }
    pins::remove_tree(pin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_the_name_of_one() {
        for name in SOCKET_PROGRAMS {
            assert!(name.starts_with(PREFIX), "{name}");
        }
    }

    #[test]
    fn what_leads_is_attached_last() {
        assert!(SOCKET_PROGRAMS.ends_with(&LEADING_PROGRAMS));
    }
}
