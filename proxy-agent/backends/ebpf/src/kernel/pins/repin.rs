//! Whether pins lead to what the agent holds, and how they are put back. Must not know what is
//! pinned.

use std::{fs, io, os::fd::AsFd};

use proxy_model::{Difference, DifferenceKind};

use super::super::{OpenError, error::passes, syscalls};
use super::{PinDir, PinError, PinPath, remove_tree};

impl PinDir {
    /// Whether the directory that is locked is still where it was.
    pub fn is_in_place(&self) -> bool {
        self.is_named().unwrap_or(false)
    }

    /// Makes and locks the directory anew. Fails where another agent has done so meanwhile.
    pub fn put_back(&mut self) -> Result<(), OpenError> {
        let back = Self::open(&self.path)?;
        // The old one is gone, so there is nothing it could take with it.
        self.made = false;
        *self = back;
        Ok(())
    }

    /// What is wrong with the directory itself.
    pub fn difference(&self) -> Option<Difference> {
        (!self.is_in_place()).then(|| Difference {
            object: format!("pin directory {}", self.path.display()),
            kind: DifferenceKind::Missing,
            service: None,
            wanted: Some("locked by this agent".to_owned()),
            found: self
                .path
                .exists()
                .then(|| "another directory of that name".to_owned()),
        })
    }
}

/// What is wrong with the pin at `path`, which should lead to `object`, called `name`.
pub fn difference(object: impl AsFd, name: &str, path: &PinPath<'_>) -> Option<Difference> {
    let found = match syscalls::open_pinned(path.as_ref()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        // Nothing is wrong with the pin then.
        Err(error) if passes(&error) => return None,
        Err(error) => Some(format!("something that cannot be opened: {error}")),
        Ok(there) => match (syscalls::identity(&there), syscalls::identity(&object)) {
            (Ok(there), Ok(object)) if there == object => return None,
            (Ok(there), _) => Some(there.to_string()),
            (Err(error), _) => Some(format!("something that cannot be examined: {error}")),
        },
    };
    Some(Difference {
        object: name.to_owned(),
        kind: DifferenceKind::Unpinned,
        service: None,
        wanted: Some(format!("pinned at {}", path.display())),
        found,
    })
}

/// Pins `object` at `path`, in the place of what may be there.
pub fn repin(object: impl AsFd, path: &PinPath<'_>) -> Result<(), PinError> {
    let failed = |error| PinError::Refused {
        what: "pinning",
        path: path.shown().to_owned(),
        error,
    };
    if let Some(directory) = path.parent() {
        directory.make_directory().map_err(failed)?;
    }
    let beside = beside(path);
    remove_tree(&beside)?;
    syscalls::pin(object, beside.as_ref()).map_err(failed)?;
    fs::rename(&beside, path).map_err(|error| {
        // It would be taken for what a crash left, and goes at the next start at the latest.
        remove_tree(&beside).ok();
        failed(error)
    })
}

/// Where something is pinned until it takes the place of what is pinned at `pin`.
pub fn beside<'d>(pin: &PinPath<'d>) -> PinPath<'d> {
    let mut name = pin.shown().file_name().unwrap_or_default().to_owned();
    name.push("-next");
    pin.with_file_name(name)
}
