//! The file system of a container: an unpacked image with a layer over it, what every runtime mounts
//! there, and the volumes of its pod.

use std::{
    collections::BTreeMap,
    env, fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    unistd::pivot_root,
};
use rustix::{
    fs::CWD,
    mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree},
};
use serde::{Deserialize, Serialize};

use super::mounts::{self, NOTHING};

/// What a container sees of files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Where it was unpacked. It is not written.
    pub unpacked: PathBuf,
    /// Whether its root may not be written.
    pub read_only: bool,
    /// Whether what the kernel shows in `/proc/sys` and `/sys` may be written: in a privileged container.
    pub kernel_writable: bool,
    /// What is mounted besides.
    pub volumes: Vec<Volume>,
    /// All that its process finds in its environment.
    pub environment: BTreeMap<String, String>,
}

/// A directory or file of the host in a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Which.
    pub of_host: PathBuf,
    /// Where.
    pub at: PathBuf,
    /// Whether it may not be written.
    pub read_only: bool,
    /// Which mounts in it one side has of the other's.
    pub propagation: Propagation,
}

impl Volume {
    /// The same path in the container, which may write it.
    pub fn shared(path: PathBuf) -> Self {
        Self {
            at: path.clone(),
            of_host: path,
            read_only: false,
            propagation: Propagation::None,
        }
    }

    /// A path that the container may read at another.
    pub fn to_read(of_host: PathBuf, at: impl Into<PathBuf>) -> Self {
        Self {
            of_host,
            at: at.into(),
            read_only: true,
            propagation: Propagation::None,
        }
    }
}

/// `mountPropagation` of a pod's volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Propagation {
    /// None that are made later.
    #[default]
    None,
    /// What the host mounts there.
    HostToContainer,
    /// What either does.
    Bidirectional,
}

/// Where programs are looked for, unless the image or the pod says otherwise: as runtimes set it.
pub const PATH: (&str, &str) = (
    "PATH",
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
);

/// The devices that every container has.
const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];

impl Image {
    /// One whose root nobody writes, without volumes.
    pub fn unpacked_in(unpacked: PathBuf) -> Self {
        Self {
            unpacked,
            read_only: true,
            kernel_writable: false,
            volumes: Vec::new(),
            environment: BTreeMap::from([(PATH.0.to_owned(), PATH.1.to_owned())]),
        }
    }

    /// Moves this process, which must have one thread, there.
    pub(super) fn enter(&self) -> Result<()> {
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWCGROUP)
            .context("cannot make namespaces")?;
        // Before the mounts of this namespace are cut off from the host's: copies stay together with
        // what they are copies of.
        let volumes = self.volumes.iter();
        let copies = volumes.map(|volume| Copy::of(&volume.of_host));
        let copies: Vec<_> = copies.collect::<Result<_>>()?;
        let unpacked = Copy::of(&self.unpacked)?;
        mounts::change(Path::new("/"), MsFlags::MS_REC | MsFlags::MS_PRIVATE)?;
        let root = layered(unpacked)?;
        mount_kernel(&root, self.kernel_writable)?;
        for (volume, copy) in self.volumes.iter().zip(copies) {
            volume.attach(copy, &root)?;
        }
        if self.read_only {
            mounts::make_read_only(&root)?;
        }
        env::set_current_dir(&root)?;
        pivot_root(".", ".").context("cannot make the image the root")?;
        umount2(".", MntFlags::MNT_DETACH).context("cannot leave the host's file system")?;
        env::set_current_dir("/").context("cannot go to the root")
    }
}

/// The image with an empty layer over it, which takes the places of mounts.
fn layered(unpacked: Copy) -> Result<PathBuf> {
    // A directory that every host has. What it holds was copied if it is needed.
    let stage = Path::new("/tmp");
    let flags = MsFlags::empty();
    mount(Some("tmpfs"), stage, Some("tmpfs"), flags, NOTHING).context("cannot mount a layer")?;
    let [lower, upper, work, root] = ["lower", "upper", "work", "root"].map(|one| stage.join(one));
    for directory in [&lower, &upper, &work, &root] {
        fs::create_dir(directory)?;
    }
    unpacked.attach(&lower)?;
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    let options = Some(options.as_str());
    mount(Some("overlay"), &root, Some("overlay"), flags, options)
        .context("cannot lay a layer over the image")?;
    Ok(root)
}

impl Volume {
    fn attach(&self, copy: Copy, root: &Path) -> Result<()> {
        let at = below(root, &self.at);
        copy.attach(&at)?;
        let tied = match self.propagation {
            Propagation::None => Some(MsFlags::MS_PRIVATE),
            Propagation::HostToContainer => Some(MsFlags::MS_SLAVE),
            Propagation::Bidirectional => None,
        };
        if let Some(tied) = tied {
            mounts::change(&at, MsFlags::MS_REC | tied)?;
        }
        if self.read_only {
            mounts::make_read_only(&at)?;
        }
        Ok(())
    }
}

/// A copy of what is mounted somewhere, with all below, that is attached nowhere.
struct Copy {
    mount: OwnedFd,
    is_directory: bool,
}

impl Copy {
    fn of(path: &Path) -> Result<Self> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE;
        let mount = open_tree(CWD, path, flags)
            .with_context(|| format!("cannot mount {}", path.display()))?;
        let is_directory = path.is_dir();
        Ok(Self {
            mount,
            is_directory,
        })
    }

    /// Makes the mount point if there is none.
    fn attach(self, at: &Path) -> Result<()> {
        let context = || format!("cannot mount at {}", at.display());
        if self.is_directory {
            fs::create_dir_all(at).with_context(context)?;
        } else if !at.exists() {
            let directory = at.parent().context("a file lies in a directory")?;
            fs::create_dir_all(directory).with_context(context)?;
            fs::write(at, "").with_context(context)?;
        }
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(self.mount, "", CWD, at, flags).with_context(context)
    }
}

/// What the kernel shows, and devices.
fn mount_kernel(root: &Path, writable: bool) -> Result<()> {
    let hardened = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let shown = if writable {
        hardened
    } else {
        hardened | MsFlags::MS_RDONLY
    };
    for (kind, at, flags) in [
        ("proc", "/proc", hardened),
        ("sysfs", "/sys", shown),
        ("cgroup2", "/sys/fs/cgroup", shown),
        (
            "tmpfs",
            "/dev",
            MsFlags::MS_NOSUID | MsFlags::MS_STRICTATIME,
        ),
    ] {
        let at = below(root, Path::new(at));
        fs::create_dir_all(&at).with_context(|| format!("cannot make {}", at.display()))?;
        mount(Some(kind), &at, Some(kind), flags, NOTHING)
            .with_context(|| format!("cannot mount {kind}"))?;
    }
    if !writable {
        mounts::protect_proc(root)?;
    }
    for name in DEVICES {
        let device = Path::new("/dev").join(name);
        let at = below(root, &device);
        fs::write(&at, "")?;
        mount(Some(&device), &at, NOTHING, MsFlags::MS_BIND, NOTHING)
            .with_context(|| format!("cannot mount {}", device.display()))?;
    }
    Ok(())
}

fn below(root: &Path, at: &Path) -> PathBuf {
    root.join(at.strip_prefix("/").unwrap_or(at))
}
