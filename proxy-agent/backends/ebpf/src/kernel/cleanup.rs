//! Undoes everything: detaches the programs and removes the pins.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::{
    OpenError, leave, links,
    pins::{Existing, PinDir, PinError, Removal},
};

/// What [`cleanup`] did; its text is for people.
#[derive(Debug)]
pub struct Cleanup {
    pin_dir: PathBuf,
    removal: Option<Removal>,
    /// What is there instead, and whose it is.
    stranger: Option<String>,
}

/// Removes all that Culvert's eBPF backend left under `pin_dir`, and nothing else. What is there
/// of others stays. It takes no rights but to the files: a program that is pinned nowhere any more is
/// detached by the kernel.
pub fn cleanup(pin_dir: &Path) -> Result<Cleanup, OpenError> {
    let mut cleanup = Cleanup {
        pin_dir: pin_dir.to_owned(),
        removal: None,
        stranger: None,
    };
    match PinDir::open_existing(pin_dir)? {
        Existing::Nothing => {}
        Existing::Stranger(stranger) => cleanup.stranger = Some(stranger),
        Existing::Locked(pins) => {
            let mut problems = leave::detach(&pins);
            problems.append(&mut links::detach(&pins.links()));
            let mut removal = pins.remove();
            problems.append(&mut removal.problems);
            if !problems.is_empty() {
                return Err(OpenError::Other(PinError::Several(problems).to_string()));
            }
            cleanup.removal = Some(removal);
        }
    }
    Ok(cleanup)
}

impl Cleanup {
    /// Whether there was anything of Culvert's.
    pub fn removed_any(&self) -> bool {
        self.removal
            .as_ref()
            .is_some_and(|removal| removal.removed > 0)
    }
}

impl fmt::Display for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pin_dir = self.pin_dir.display();
        if let Some(stranger) = &self.stranger {
            return write!(f, "nothing of Culvert's at {pin_dir}: {stranger}");
        }
        let Some(removal) = &self.removal else {
            return write!(f, "nothing at {pin_dir}");
        };
        if removal.left.is_empty() {
            return write!(f, "removed {pin_dir}");
        }
        let left: Vec<_> = removal
            .left
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let what = if removal.removed > 0 {
            "removed Culvert's pins from"
        } else {
            "no pins of Culvert's in"
        };
        write!(
            f,
            "{what} {pin_dir}; left what is not Culvert's: {}",
            left.join(", ")
        )
    }
}
