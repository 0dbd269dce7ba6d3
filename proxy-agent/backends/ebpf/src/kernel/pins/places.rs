//! What is where in a pin directory.

use std::{fs, fs::File, io, path::PathBuf};

use proxy_common::{CONNECTIONS_ABI, FLOWS_ABI, SERVICES_ABI};

use super::{DEVICES, LINKS, PinDir, PinError, PinPath, remove_tree};

impl PinDir {
    /// Service maps of this version that are in force.
    pub fn services(&self) -> PinPath<'_> {
        self.here().join(services())
    }

    /// Service maps of this version.
    pub fn service_maps(&self) -> Generations<'_> {
        Generations::of(self.services())
    }

    /// Flow maps of this version.
    pub fn flows(&self) -> PinPath<'_> {
        self.here().join(format!("flows-v{FLOWS_ABI}"))
    }

    /// Maps of connections of this version that are in force.
    pub fn connections(&self) -> PinPath<'_> {
        self.here().join(connections())
    }

    /// Maps of connections of this version.
    pub fn connection_maps(&self) -> Generations<'_> {
        Generations::of(self.connections())
    }

    /// Links.
    pub fn links(&self) -> PinPath<'_> {
        self.here().join(LINKS)
    }

    /// Links to devices.
    pub fn devices(&self) -> PinPath<'_> {
        self.here().join(DEVICES)
    }
}

/// Maps that are replaced as a whole, by others that are made and filled beside them.
#[derive(Debug)]
pub struct Generations<'d> {
    /// Those in force.
    pub present: PinPath<'d>,
    /// Those that are to take their place.
    pub next: PinPath<'d>,
    /// Those that have just been replaced, until they are removed.
    pub old: PinPath<'d>,
}

impl<'d> Generations<'d> {
    fn of(present: PinPath<'d>) -> Self {
        let name = present.shown().file_name().unwrap_or_default();
        let beside = |suffix: &str| {
            let mut name = name.to_owned();
            name.push(suffix);
            present.with_file_name(name)
        };
        Self {
            next: beside("-next"),
            old: beside("-old"),
            present,
        }
    }

    /// Finds what is in force: a run that died while it replaced leaves two, of which the first that
    /// exists is. Whether there are any.
    pub fn find(&self) -> Result<bool, PinError> {
        if self.present.exists() {
            return Ok(true);
        }
        for left in [&self.next, &self.old] {
            if left.exists() {
                rename(left, &self.present)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Puts the next ones in force, once programs use them. Renames come first: a run that dies in
    /// between leaves no half-emptied directory under the name in force.
    pub fn replace(&self) -> Result<(), PinError> {
        rename(&self.present, &self.old)?;
        rename(&self.next, &self.present)?;
        remove_tree(&self.old)
    }
}

fn rename(from: &PinPath<'_>, to: &PinPath<'_>) -> Result<(), PinError> {
    fs::rename(from, to).map_err(|error: io::Error| PinError::Refused {
        what: "renaming",
        path: from.shown().to_owned(),
        error,
    })
}

fn services() -> String {
    format!("services-v{SERVICES_ABI}")
}

fn connections() -> String {
    format!("connections-v{CONNECTIONS_ABI}")
}

/// A pin directory that may be another agent's, to look into.
#[derive(Debug)]
pub struct Peek {
    pub(super) path: PathBuf,
    pub(super) directory: File,
}

impl Peek {
    /// The directory.
    pub fn directory(&self) -> &File {
        &self.directory
    }

    /// Service maps of this version.
    pub fn services(&self) -> PinPath<'_> {
        PinPath::of(&self.directory, &self.path).join(services())
    }

    /// Maps of connections of this version.
    pub fn connections(&self) -> PinPath<'_> {
        PinPath::of(&self.directory, &self.path).join(connections())
    }

    /// Links.
    pub fn links(&self) -> PinPath<'_> {
        PinPath::of(&self.directory, &self.path).join(LINKS)
    }

    /// Links to devices.
    pub fn devices(&self) -> PinPath<'_> {
        PinPath::of(&self.directory, &self.path).join(DEVICES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_generation_that_is_left_is_in_force() {
        for (left, expected) in [
            (&["", "-next", "-old"][..], Some("")),
            (&["-next", "-old"], Some("-next")),
            (&["-old"], Some("-old")),
            (&[], None),
        ] {
            let dir = tempfile::tempdir().unwrap();
            for suffix in left {
                let maps = dir.path().join(format!("{}{suffix}", connections()));
                fs::create_dir(&maps).unwrap();
                fs::write(maps.join("MAP"), suffix).unwrap();
            }
            let pins = PinDir::for_test(dir.path());
            let maps = pins.connection_maps();
            assert_eq!(maps.find().unwrap(), expected.is_some(), "{left:?}");
            let found = fs::read_to_string(maps.present.join("MAP")).ok();
            assert_eq!(found.as_deref(), expected, "{left:?}");
        }
    }

    #[test]
    fn the_next_generation_takes_the_place_of_the_present_one() {
        let dir = tempfile::tempdir().unwrap();
        let pins = PinDir::for_test(dir.path());
        let maps = pins.service_maps();
        for (path, text) in [(&maps.present, "present"), (&maps.next, "next")] {
            path.make_directory().unwrap();
            fs::write(path.join("MAP"), text).unwrap();
        }
        maps.replace().unwrap();
        let found = fs::read_to_string(maps.present.join("MAP")).unwrap();
        assert_eq!(found, "next");
        assert!(!maps.next.exists() && !maps.old.exists());
    }
}
