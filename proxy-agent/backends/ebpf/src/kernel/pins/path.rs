//! Where a pin is: told as people know it, and reached through the directory that is held open.
//! What the path of that directory leads to by now is another matter.

use std::{
    fmt,
    fs::{DirBuilder, File},
    io,
    marker::PhantomData,
    os::{fd::AsRawFd as _, unix::fs::DirBuilderExt as _},
    path::{Path, PathBuf},
};

/// A pin, or a directory of pins, below a directory that is held. As a path for system calls
/// (`AsRef<Path>`) it goes through that one's descriptor.
#[derive(Debug, Clone)]
pub struct PinPath<'d> {
    at: PathBuf,
    shown: PathBuf,
    /// Without the directory its descriptor is anybody's.
    held: PhantomData<&'d File>,
}

impl<'d> PinPath<'d> {
    /// The directory itself, which `held` is and people know as `shown`.
    pub(super) fn of(held: &'d File, shown: &Path) -> Self {
        Self {
            // The kernel goes to the very directory, whatever is mounted or renamed.
            at: format!("/proc/self/fd/{}", held.as_raw_fd()).into(),
            shown: shown.to_owned(),
            held: PhantomData,
        }
    }

    /// What is called `name` in it.
    pub fn join(&self, name: impl AsRef<Path>) -> Self {
        Self {
            at: self.at.join(&name),
            shown: self.shown.join(&name),
            held: PhantomData,
        }
    }

    /// What is called `name` beside it.
    pub fn with_file_name(&self, name: impl AsRef<std::ffi::OsStr>) -> Self {
        Self {
            at: self.at.with_file_name(&name),
            shown: self.shown.with_file_name(&name),
            held: PhantomData,
        }
    }

    /// The directory that it is in.
    pub fn parent(&self) -> Option<Self> {
        Some(Self {
            at: self.at.parent()?.to_owned(),
            shown: self.shown.parent()?.to_owned(),
            held: PhantomData,
        })
    }

    /// As people know it.
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// For messages.
    pub fn display(&self) -> std::path::Display<'_> {
        self.shown.display()
    }

    /// Whether something is there.
    pub fn exists(&self) -> bool {
        self.at.symlink_metadata().is_ok()
    }

    /// Makes a directory here that is nobody else's; one that is there is fine.
    pub fn make_directory(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.at) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && self.at.is_dir() => {
                Ok(())
            }
            made => made,
        }
    }
}

impl AsRef<Path> for PinPath<'_> {
    fn as_ref(&self) -> &Path {
        &self.at
    }
}

impl fmt::Display for PinPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shown.display().fmt(f)
    }
}
