//! The pin directory: where maps and links outlive the agent, and the lock that keeps a second
//! agent away.
//!
//! ```text
//! <pin dir>/services-v1/<MAP>      rebuilt beside (services-v1-next) when it does not fit
//! <pin dir>/flows-v1/<MAP>
//! <pin dir>/links/<program>
//! ```
//! The version in a name is the ABI version of the maps in it.

pub mod bpffs;
mod removal;
pub mod repin;

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    sys::statfs::{BPF_FS_MAGIC, fstatfs},
};
use proxy_common::{FLOWS_ABI, SERVICES_ABI};

use super::OpenError;
pub use removal::{Removal, remove_tree};

/// A locked pin directory. One that this made goes again with it while nothing is in it, so that
/// a start that fails leaves no trace.
#[derive(Debug)]
pub struct PinDir {
    path: PathBuf,
    made: bool,
    lock: Flock<File>,
}

impl PinDir {
    /// Opens and locks `path`, making it, and mounting bpffs, where needed.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let made = !path.exists();
        bpffs::ensure(path)?;
        loop {
            fs::create_dir_all(path).map_err(|error| {
                OpenError::io(
                    &error,
                    &format!("creating pin directory {}", path.display()),
                )
            })?;
            if let Some(mut pins) = Self::try_open(path)? {
                pins.made = made;
                return Ok(pins);
            }
        }
    }

    /// Opens and locks `path` if it exists.
    pub fn open_existing(path: &Path) -> Result<Option<Self>, OpenError> {
        while path.exists() {
            if let Some(pins) = Self::try_open(path)? {
                return Ok(Some(pins));
            }
        }
        Ok(None)
    }

    /// `None` if the directory is gone by now.
    fn try_open(path: &Path) -> Result<Option<Self>, OpenError> {
        let failed = |error: &io::Error| {
            OpenError::io(error, &format!("opening pin directory {}", path.display()))
        };
        let mut directory = File::options();
        directory.read(true).custom_flags(libc::O_DIRECTORY);
        let directory = match directory.open(path) {
            Ok(directory) => directory,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        let kind = fstatfs(&directory).map_err(|errno| failed(&errno.into()))?;
        if kind.filesystem_type() != BPF_FS_MAGIC {
            return Err(bpffs::missing(path));
        }
        Self::lock(path, directory)
    }

    /// `None` if `directory` is not what `path` leads to once it is locked: whoever held the lock
    /// removed it.
    fn lock(path: &Path, directory: File) -> Result<Option<Self>, OpenError> {
        let failed = |error: &io::Error| {
            OpenError::io(error, &format!("locking pin directory {}", path.display()))
        };
        let lock = match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((_, Errno::EWOULDBLOCK)) => return Err(OpenError::Locked(path.to_owned())),
            Err((_, errno)) => return Err(failed(&errno.into())),
        };
        let locked = lock.metadata().map_err(|error| failed(&error))?;
        match fs::metadata(path) {
            Ok(named) if (named.dev(), named.ino()) == (locked.dev(), locked.ino()) => {
                Ok(Some(Self {
                    path: path.to_owned(),
                    made: false,
                    lock,
                }))
            }
            Ok(_) => Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Service maps of this version.
    pub fn services(&self) -> PathBuf {
        services_in(&self.path)
    }

    /// Service maps that are being rebuilt beside those in [`Self::services`].
    pub fn services_next(&self) -> PathBuf {
        self.path.join(format!("services-v{SERVICES_ABI}-next"))
    }

    /// Service maps that have just been replaced, until they are removed.
    pub fn services_old(&self) -> PathBuf {
        self.path.join(format!("services-v{SERVICES_ABI}-old"))
    }

    /// Flow maps of this version.
    pub fn flows(&self) -> PathBuf {
        self.path.join(format!("flows-v{FLOWS_ABI}"))
    }

    /// Links.
    pub fn links(&self) -> PathBuf {
        links_in(&self.path)
    }
}

/// Service maps of this version in a pin directory that may be anybody's.
pub fn services_in(pin_dir: &Path) -> PathBuf {
    pin_dir.join(format!("services-v{SERVICES_ABI}"))
}

/// Links in such a directory.
pub fn links_in(pin_dir: &Path) -> PathBuf {
    pin_dir.join("links")
}

impl Drop for PinDir {
    fn drop(&mut self) {
        if self.made {
            // Only what is empty can be removed this way: nothing of a start that went well.
            let parts = [self.services(), self.services_next(), self.flows()];
            for path in parts.iter().chain([&self.links(), &self.path]) {
                fs::remove_dir(path).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_removed_before_it_was_locked_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pins");
        fs::create_dir(&path).unwrap();
        let opened = File::open(&path).unwrap();
        fs::rename(&path, dir.path().join("moved")).unwrap();
        let again = opened.try_clone().unwrap();
        assert!(PinDir::lock(&path, again).unwrap().is_none(), "gone");
        fs::create_dir(&path).unwrap();
        let again = opened.try_clone().unwrap();
        assert!(PinDir::lock(&path, again).unwrap().is_none(), "another");
        let locked = PinDir::lock(&path, File::open(&path).unwrap()).unwrap();
        assert!(locked.is_some());
        let second = PinDir::lock(&path, File::open(&path).unwrap());
        assert!(matches!(second, Err(OpenError::Locked(_))), "{second:?}");
    }

    #[test]
    fn only_an_empty_directory_that_was_made_goes_with_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pins");
        let open = |made| {
            fs::create_dir_all(path.join("links")).unwrap();
            let mut pins = PinDir::lock(&path, File::open(&path).unwrap())
                .unwrap()
                .unwrap();
            pins.made = made;
            pins
        };
        drop(open(false));
        assert!(path.join("links").exists(), "it was there before");
        let pins = open(true);
        fs::create_dir(pins.services()).unwrap();
        fs::write(pins.services().join("MAP"), "").unwrap();
        let map = pins.services().join("MAP");
        drop(pins);
        assert!(map.exists());
        fs::remove_file(map).unwrap();
        drop(open(true));
        assert!(!path.exists());
    }
}
