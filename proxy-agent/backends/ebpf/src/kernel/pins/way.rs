//! The way to a pin directory, from where its BPF file system begins: every directory on it is
//! opened in the one before, no symbolic link is followed, and whose it is is asked of what is open.
//! So nobody but root and this process's user can have put there what is used.
//!
//! The usual BPF file system lets everybody make directories (mode 1777). What somebody else made
//! first where pins shall be is put aside (`strangers`): it decides nothing.

use std::{
    fs::{File, Metadata},
    os::unix::fs::MetadataExt as _,
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, openat},
    sys::stat::{Mode, fchmod, fstatat, mkdirat},
};

use super::{
    super::OpenError,
    bpffs,
    strangers::{self, is_trusted},
};
use crate::kernel::error::of_io;

/// How often somebody may be quicker than this process in making what is missing.
const ATTEMPTS: u32 = 64;

/// Bits of a mode that let others change what is in a directory, and one that keeps them from what
/// is not theirs.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// All that others may do.
const OTHERS: u32 = 0o077;

/// What is at the path of a pin directory.
#[derive(Debug)]
pub enum Way {
    /// Nothing.
    Nothing,
    /// What somebody made who may not decide about pins; says what and who.
    Stranger(String),
    /// A directory that only root and this process's user can have made.
    Directory(File),
}

/// Looks, and changes nothing. An error is what only who runs this host can mend.
pub fn find(path: &Path) -> Result<Way, OpenError> {
    let Some(root) = bpffs::root(path) else {
        return Ok(Way::Nothing);
    };
    let mut at = Step::root(root, path)?;
    for name in below(root, path) {
        at = match at.look(&name)? {
            Next::Nothing => return Ok(Way::Nothing),
            Next::Stranger(stranger) => {
                at.may_be_put_aside(&name, &stranger)?;
                return Ok(Way::Stranger(stranger.to_string()));
            }
            Next::Directory(next) => next,
        };
    }
    Ok(Way::Directory(at.directory))
}

/// Opens the directory, making what is missing of the way to it, and says whether it was made.
pub fn make(path: &Path) -> Result<(File, bool), OpenError> {
    let root = bpffs::root(path).ok_or_else(|| bpffs::missing(path))?;
    let mut at = Step::root(root, path)?;
    let mut made = false;
    for name in below(root, path) {
        (at, made) = at.make(&name)?;
    }
    Ok((at.directory, made))
}

/// Makes a directory that is open nobody else's, in what others may do there.
pub fn close_to_others(directory: &File, path: &Path) -> Result<(), OpenError> {
    let failed = |error: &_| of_io(error, &format!("examining {}", path.display()));
    let there = directory.metadata().map_err(|error| failed(&error))?;
    if there.mode() & OTHERS == 0 {
        return Ok(());
    }
    match fchmod(directory, Mode::S_IRWXU) {
        Ok(()) => Ok(()),
        // Root's, and others may only look: what they could do with that is keep it locked.
        Err(_) if there.mode() & OTHERS_WRITE == 0 => Ok(()),
        Err(errno) => Err(of_io(
            &errno.into(),
            &format!("closing {} to other users", path.display()),
        )),
    }
}

/// The directory called `name` in one that is open; `None` if that is no directory.
pub fn inside(directory: &File, name: &Path, path: &Path) -> Result<Option<File>, OpenError> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    match openat(directory, name, flags, Mode::empty()) {
        Ok(opened) => Ok(Some(opened.into())),
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(None),
        Err(errno) => Err(opening(path, errno)),
    }
}

fn below(root: &Path, path: &Path) -> Vec<PathBuf> {
    let rest = path.strip_prefix(root).unwrap_or(Path::new(""));
    rest.components()
        .filter(|part| !matches!(part, Component::CurDir))
        .map(|part| PathBuf::from(part.as_os_str()))
        .collect()
}

/// A directory on the way.
struct Step {
    directory: File,
    path: PathBuf,
}

/// What a name on the way leads to.
enum Next {
    Nothing,
    Stranger(Stranger),
    Directory(Step),
}

/// What somebody else made.
struct Stranger {
    path: PathBuf,
    owner: u32,
}

impl Stranger {
    fn stays(&self, reason: &str) -> OpenError {
        OpenError::Host(format!(
            "{self}, who could exchange the pins in it{reason}; remove it, or name another \
             directory with --pin-dir"
        ))
    }
}

impl std::fmt::Display for Stranger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display();
        write!(f, "{path} belongs to user {}", self.owner)
    }
}

impl Step {
    /// Where the BPF file system begins. Whoever owns it can exchange all that is in it.
    fn root(root: &Path, path: &Path) -> Result<Self, OpenError> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let opened = nix::fcntl::open(root, flags, Mode::empty());
        let step = match opened {
            Ok(opened) => Self {
                directory: opened.into(),
                path: root.to_owned(),
            },
            Err(Errno::ENOTDIR | Errno::ELOOP) => return Err(alias(root)),
            Err(errno) => return Err(opening(root, errno)),
        };
        let there = step.metadata()?;
        let exchanges = there.mode() & OTHERS_WRITE != 0 && there.mode() & STICKY == 0;
        if !is_trusted(there.uid()) || (exchanges && root != path) {
            return Err(OpenError::Host(format!(
                "{} can be changed by others, who could exchange the pins in it; chmod 0700 {0}, \
                 or name a directory of another BPF file system with --pin-dir",
                root.display()
            )));
        }
        Ok(step)
    }

    fn metadata(&self) -> Result<Metadata, OpenError> {
        let failed = |error| of_io(&error, &format!("examining {}", self.path.display()));
        self.directory.metadata().map_err(failed)
    }

    fn look(&self, name: &Path) -> Result<Next, OpenError> {
        let path = self.path.join(name);
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let errno = match openat(&self.directory, name, flags, Mode::empty()) {
            Ok(opened) => {
                let next = Self {
                    directory: opened.into(),
                    path,
                };
                let owner = next.metadata()?.uid();
                if is_trusted(owner) {
                    return Ok(Next::Directory(next));
                }
                let path = next.path;
                return Ok(Next::Stranger(Stranger { path, owner }));
            }
            Err(Errno::ENOENT) => return Ok(Next::Nothing),
            Err(errno) => errno,
        };
        // No directory, or one that its owner lets nobody read.
        let found = match fstatat(&self.directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::ENOENT) => return Ok(Next::Nothing),
            Err(_) => return Err(opening(&path, errno)),
        };
        let owner = found.st_uid;
        if !is_trusted(owner) {
            return Ok(Next::Stranger(Stranger { path, owner }));
        }
        Err(match found.st_mode & libc::S_IFMT {
            libc::S_IFLNK => alias(&path),
            _ => opening(&path, errno),
        })
    }

    /// The directory called `name`, and whether it was made.
    fn make(&self, name: &Path) -> Result<(Self, bool), OpenError> {
        let mut made = false;
        for _ in 0..ATTEMPTS {
            match self.look(name)? {
                Next::Directory(next) => return Ok((next, made)),
                Next::Stranger(stranger) => self.put_aside(name, &stranger)?,
                Next::Nothing => {}
            }
            match mkdirat(&self.directory, name, Mode::S_IRWXU) {
                Ok(()) => made = true,
                Err(Errno::EEXIST) => {}
                Err(errno) => {
                    let path = self.path.join(name);
                    let what = format!("creating pin directory {}", path.display());
                    return Err(of_io(&errno.into(), &what));
                }
            }
        }
        Err(OpenError::Host(format!(
            "{} is made again and again by another user; find and end that process, or name \
             another directory with --pin-dir",
            self.path.join(name).display()
        )))
    }

    /// What somebody else made stays where only root can have brought it about: root is told.
    fn may_be_put_aside(&self, name: &Path, stranger: &Stranger) -> Result<(), OpenError> {
        if self.metadata()?.mode() & OTHERS_WRITE == 0 {
            return Err(stranger.stays(""));
        }
        if strangers::serve(&self.directory, name) {
            // Only somebody with an agent's rights can have made that.
            return Err(OpenError::Host(format!(
                "{stranger}, and programs are attached by what is pinned in it; run the agent as \
                 that user as before, or run `proxy-agent cleanup` as that user first"
            )));
        }
        Ok(())
    }

    /// Makes room where everybody may make directories.
    fn put_aside(&self, name: &Path, stranger: &Stranger) -> Result<(), OpenError> {
        self.may_be_put_aside(name, stranger)?;
        let aside = strangers::put_aside(&self.directory, name, stranger.owner)
            .map_err(|errno| stranger.stays(&format!(", and cannot be put aside: {errno}")))?;
        tracing::warn!(
            path = %stranger.path.display(),
            user = stranger.owner,
            moved_to = aside.map(|aside| self.path.join(aside).display().to_string()),
            "another user's entry put aside"
        );
        Ok(())
    }
}

fn alias(path: &Path) -> OpenError {
    OpenError::Host(format!(
        "{} is a symbolic link, which could lead elsewhere at any time; name the directory that it \
         leads to with --pin-dir",
        path.display()
    ))
}

fn opening(path: &Path, errno: Errno) -> OpenError {
    let what = format!("opening pin directory {}", path.display());
    of_io(&errno.into(), &what)
}
