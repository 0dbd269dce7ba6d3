//! The pin directory: where maps and links outlive the agent, and the lock that keeps a second
//! agent away.
//!
//! ```text
//! <pin dir>/services-v1/<MAP>      rebuilt beside (services-v1-next) when it does not fit
//! <pin dir>/flows-v1/<MAP>
//! <pin dir>/connections-v1/<MAP>   filled beside (connections-v1-next) when its size is another one
//! <pin dir>/links/<program>
//! <pin dir>/devices/<number of a device>-<direction>
//! ```
//! The version in a name is the ABI version of the maps in it.
//!
//! All of it is reached through the directory that is held, which nobody else can enter or change:
//! whoever could would decide what the programs read, and what this process takes for its maps.

pub mod bpffs;
mod error;
mod holder;
mod listing;
mod look;
mod path;
mod places;
mod readable;
mod removal;
pub mod repin;
mod strangers;
mod stuck;
mod way;

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::Flock,
    sys::statfs::{BPF_FS_MAGIC, fstatfs},
};

use super::OpenError;
use super::error::of_io;
pub use error::PinError;
pub use holder::holders;
pub use listing::entries_in;
pub use look::look;
pub use path::PinPath;
pub use places::{Generations, Peek};
pub use readable::open_readable;
pub use removal::{Removal, remove_tree};
pub use way::Way;

/// The directory of links.
const LINKS: &str = "links";
/// The directory of links to devices.
const DEVICES: &str = "devices";

/// A locked pin directory. One that this made goes again with it while nothing is in it, so that
/// a start that fails leaves no trace.
#[derive(Debug)]
pub struct PinDir {
    path: PathBuf,
    made: bool,
    lock: Flock<File>,
}

/// What came of locking.
enum Locked {
    Ours(PinDir),
    /// Whoever held the lock removed the directory.
    Gone,
    /// By this process, of a user who can be no agent.
    ByStranger(String),
}

/// A pin directory that is there.
pub enum Existing {
    /// None is.
    Nothing,
    /// What is there is nobody's who may decide about pins; says what and whose.
    Stranger(String),
    /// It is locked now.
    Locked(PinDir),
}

impl PinDir {
    /// Opens and locks `path`, making it, and mounting bpffs, where needed.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        bpffs::ensure(path)?;
        let mut made = false;
        loop {
            let (directory, anew) = way::make(path)?;
            made |= anew;
            match Self::take(path, directory)? {
                Locked::Ours(mut pins) => {
                    pins.made = made;
                    return Ok(pins);
                }
                Locked::Gone => {}
                Locked::ByStranger(who) => stuck::replace(path, &who)?,
            }
        }
    }

    /// Opens and locks `path` if it exists.
    pub fn open_existing(path: &Path) -> Result<Existing, OpenError> {
        if bpffs::root(path).is_none() && path.exists() {
            return Err(bpffs::missing(path));
        }
        loop {
            match way::find(path)? {
                Way::Nothing => return Ok(Existing::Nothing),
                Way::Stranger(stranger) => return Ok(Existing::Stranger(stranger)),
                Way::Directory(directory) => match Self::take(path, directory)? {
                    Locked::Ours(pins) => return Ok(Existing::Locked(pins)),
                    Locked::Gone => {}
                    Locked::ByStranger(who) => stuck::replace(path, &who)?,
                },
            }
        }
    }

    /// The directory at `path` as it is, without its lock, to look into it; `None` where there is
    /// none that can be relied upon.
    pub fn peek(path: &Path) -> Option<Peek> {
        Self::look_into(path).ok().flatten()
    }

    /// The same; an error says why it cannot be told whether there is one.
    pub fn look_into(path: &Path) -> Result<Option<Peek>, OpenError> {
        let Way::Directory(directory) = way::find(path)? else {
            return Ok(None);
        };
        let failed = |error: &_| of_io(error, &format!("examining {}", path.display()));
        let mode = directory.metadata().map_err(|error| failed(&error))?.mode();
        Ok((mode & 0o022 == 0).then(|| Peek {
            path: path.to_owned(),
            directory,
        }))
    }

    fn take(path: &Path, directory: File) -> Result<Locked, OpenError> {
        let failed =
            |error: &io::Error| of_io(error, &format!("opening pin directory {}", path.display()));
        let kind = fstatfs(&directory).map_err(|errno| failed(&errno.into()))?;
        if kind.filesystem_type() != BPF_FS_MAGIC {
            return Err(bpffs::missing(path));
        }
        let locked = Self::lock(path, directory)?;
        if let Locked::Ours(pins) = &locked {
            pins.close()?;
        }
        Ok(locked)
    }

    fn lock(path: &Path, directory: File) -> Result<Locked, OpenError> {
        let failed =
            |error: &io::Error| of_io(error, &format!("locking pin directory {}", path.display()));
        let lock = match holder::lock(directory) {
            Ok(lock) => lock,
            Err((directory, Errno::EWOULDBLOCK)) => {
                return match stuck::stranger_with(&directory) {
                    Some(who) => Ok(Locked::ByStranger(who)),
                    None => Err(OpenError::Locked(path.to_owned())),
                };
            }
            Err((_, errno)) => return Err(failed(&errno.into())),
        };
        let pins = Self {
            path: path.to_owned(),
            made: false,
            lock,
        };
        match pins.is_named() {
            Ok(true) => Ok(Locked::Ours(pins)),
            Ok(false) => Ok(Locked::Gone),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Whether the path still leads to the directory that is locked.
    fn is_named(&self) -> io::Result<bool> {
        let locked = self.lock.metadata()?;
        match fs::symlink_metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (locked.dev(), locked.ino())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Closes the directory and those in it to everybody else: earlier versions let others look
    /// (mode 0755). What others put there before goes.
    fn close(&self) -> Result<(), OpenError> {
        let is_ours = |name: &Path| {
            name.as_os_str() == LINKS || name.as_os_str() == DEVICES || removal::is_maps(name)
        };
        let failed =
            |error: &io::Error, path: &Path| of_io(error, &format!("examining {}", path.display()));
        let close = |directory: &File, path: &Path, is_ours: &dyn Fn(&Path) -> bool| {
            way::close_to_others(directory, path)?;
            let expelled = strangers::expel(directory, is_ours);
            for name in expelled.map_err(|error| failed(&error, path))? {
                tracing::warn!(
                    path = %path.join(name).display(),
                    "another user's entry put aside"
                );
            }
            Ok::<(), OpenError>(())
        };
        close(&self.lock, &self.path, &is_ours)?;
        let entries = fs::read_dir(self.here()).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        for entry in entries.map_err(|error| failed(&error, &self.path))? {
            let name = PathBuf::from(entry.file_name());
            if !is_ours(&name) {
                continue;
            }
            let path = self.path.join(&name);
            let Some(inside) = way::inside(&self.lock, &name, &path)? else {
                continue;
            };
            close(&inside, &path, &|_| true)?;
        }
        Ok(())
    }

    /// The directory, for another thread of this process. It stays locked until that is done.
    pub fn share(&self) -> Result<Peek, OpenError> {
        let directory = self.lock.try_clone();
        let directory = directory
            .map_err(|error| of_io(&error, &format!("opening {}", self.path.display())))?;
        Ok(Peek {
            path: self.path.clone(),
            directory,
        })
    }

    /// As people know it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory itself.
    pub fn here(&self) -> PinPath<'_> {
        PinPath::of(&self.lock, &self.path)
    }
}

impl Drop for PinDir {
    fn drop(&mut self) {
        if self.made {
            // Only what is empty can be removed this way: nothing of a start that went well.
            let parts = [
                self.services(),
                self.service_maps().next,
                self.flows(),
                self.connections(),
                self.connection_maps().next,
                self.links(),
                self.devices(),
            ];
            for path in &parts {
                fs::remove_dir(path).ok();
            }
            fs::remove_dir(&self.path).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl PinDir {
        /// The directory at `path`, of any file system.
        pub(in crate::kernel) fn for_test(path: &Path) -> Self {
            match Self::lock(path, File::open(path).unwrap()).unwrap() {
                Locked::Ours(pins) => pins,
                Locked::Gone | Locked::ByStranger(_) => panic!("{} is not ours", path.display()),
            }
        }
    }

    #[test]
    fn a_directory_that_was_removed_before_it_was_locked_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pins");
        fs::create_dir(&path).unwrap();
        let opened = File::open(&path).unwrap();
        let lock = || PinDir::lock(&path, opened.try_clone().unwrap()).unwrap();
        fs::rename(&path, dir.path().join("moved")).unwrap();
        assert!(matches!(lock(), Locked::Gone), "gone");
        fs::create_dir(&path).unwrap();
        assert!(matches!(lock(), Locked::Gone), "another");
        let locked = PinDir::for_test(&path);
        let second = PinDir::lock(&path, File::open(&path).unwrap());
        assert!(matches!(second, Err(OpenError::Locked(_))));
        drop(locked);
    }

    #[test]
    fn only_an_empty_directory_that_was_made_goes_with_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pins");
        let open = |made| {
            fs::create_dir_all(path.join("links")).unwrap();
            let mut pins = PinDir::for_test(&path);
            pins.made = made;
            pins
        };
        drop(open(false));
        assert!(path.join("links").exists(), "it was there before");
        let pins = open(true);
        pins.services().make_directory().unwrap();
        fs::write(pins.services().join("MAP"), "").unwrap();
        let map = path.join("services-v1").join("MAP");
        drop(pins);
        assert!(map.exists());
        fs::remove_file(map).unwrap();
        drop(open(true));
        assert!(!path.exists());
    }

    #[test]
    fn pins_are_reached_where_the_directory_is_and_told_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("pins"), dir.path().join("moved"));
        fs::create_dir(&path).unwrap();
        let pins = PinDir::for_test(&path);
        fs::rename(&path, &moved).unwrap();
        fs::create_dir(&path).unwrap();
        pins.links().make_directory().unwrap();
        assert!(moved.join("links").is_dir() && !path.join("links").exists());
        assert_eq!(pins.links().shown(), path.join("links"));
        assert!(!pins.is_in_place());
    }
}
