//! The pin directory: where maps and links outlive the agent, and the lock that keeps a second
//! agent away.
//!
//! ```text
//! <pin dir>/services-v1/<MAP>      rebuilt beside (services-v1-next) when it does not fit
//! <pin dir>/flows-v1/<MAP>
//! <pin dir>/links/<program>
//! ```
//! The version in a name is the ABI version of the maps in it.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{Flock, FlockArg},
    mount::{MsFlags, mount},
    sys::statfs::{BPF_FS_MAGIC, statfs},
};
use proxy_common::{FLOWS_ABI, SERVICES_ABI};

use super::OpenError;

/// Where the kernel's own documentation and every tool expect bpffs.
const BPFFS: &str = "/sys/fs/bpf";

/// A locked pin directory.
#[derive(Debug)]
pub struct PinDir {
    path: PathBuf,
    _lock: Flock<File>,
}

impl PinDir {
    /// Opens and locks `path`, making it, and mounting bpffs at `/sys/fs/bpf`, where needed.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        if !on_bpffs(path) {
            if !path.starts_with(BPFFS) {
                return Err(OpenError::Host(format!(
                    "pin directory {} is not on a BPF file system: mount one there (mount -t bpf \
                     bpf DIR), or use a directory under {BPFFS}",
                    path.display()
                )));
            }
            mount_bpffs()?;
        }
        fs::create_dir_all(path).map_err(|error| {
            OpenError::io(
                &error,
                &format!("creating pin directory {}", path.display()),
            )
        })?;
        Self::lock(path)
    }

    /// Opens and locks `path` if it exists.
    pub fn open_existing(path: &Path) -> Result<Option<Self>, OpenError> {
        if path.is_dir() {
            Self::lock(path).map(Some)
        } else {
            Ok(None)
        }
    }

    fn lock(path: &Path) -> Result<Self, OpenError> {
        let directory = File::open(path).map_err(|error| {
            OpenError::io(&error, &format!("opening pin directory {}", path.display()))
        })?;
        match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self {
                path: path.to_owned(),
                _lock: lock,
            }),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Err(OpenError::Locked(path.to_owned())),
            Err((_, errno)) => Err(OpenError::io(
                &errno.into(),
                &format!("locking pin directory {}", path.display()),
            )),
        }
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Service maps of this version.
    pub fn services(&self) -> PathBuf {
        self.path.join(format!("services-v{SERVICES_ABI}"))
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
        self.path.join("links")
    }

    /// Maps that another version of Culvert left.
    pub fn of_other_versions(&self) -> io::Result<Vec<PathBuf>> {
        let ours = [
            self.services(),
            self.services_next(),
            self.flows(),
            self.links(),
        ];
        let mut others = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            if !ours.contains(&path) {
                others.push(path);
            }
        }
        others.sort();
        Ok(others)
    }

    /// Removes the directory and all that is left in it. Collects what it could not remove.
    pub fn remove(self) -> Vec<String> {
        let mut problems = Vec::new();
        match fs::read_dir(&self.path) {
            Ok(entries) => {
                for entry in entries.flatten() {
                    problems.extend(remove_tree(&entry.path()).err());
                }
            }
            Err(error) => problems.push(format!("reading {}: {error}", self.path.display())),
        }
        if let Err(error) = fs::remove_dir(&self.path) {
            problems.push(format!("removing {}: {error}", self.path.display()));
        }
        problems
    }
}

/// Removes a pinned object, or a directory of them. What is not there is fine.
pub fn remove_tree(path: &Path) -> Result<(), String> {
    let result = if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("removing {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Whether `path`, or the nearest ancestor of it that exists, is on bpffs.
fn on_bpffs(path: &Path) -> bool {
    path.ancestors()
        .find(|ancestor| ancestor.exists())
        .and_then(|ancestor| statfs(ancestor).ok())
        .is_some_and(|stat| stat.filesystem_type() == BPF_FS_MAGIC)
}

fn mount_bpffs() -> Result<(), OpenError> {
    let nothing = None::<&str>;
    match mount(Some("bpf"), BPFFS, Some("bpf"), MsFlags::empty(), nothing) {
        Ok(()) => {
            tracing::info!(path = BPFFS, "mounted the BPF file system");
            Ok(())
        }
        Err(errno) => Err(OpenError::Host(format!(
            "mounting the BPF file system at {BPFFS}: {errno}; run as root, or mount it before: \
             mount -t bpf bpf {BPFFS}"
        ))),
    }
}
