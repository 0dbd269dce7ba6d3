//! Attaches the programs to a cgroup so that they stay attached when the agent ends, and puts new
//! programs in the place of old ones without a gap.

mod held;
mod pinned;
mod program;

use std::{fs, io, os::fd::OwnedFd};

use aya::Ebpf;
use proxy_common::names::SOCKET_PROGRAMS;

use super::error::{of_io, of_kernel};
use super::{
    OpenError,
    cgroup::Cgroup,
    pins::{PinError, PinPath, repin},
    syscalls,
};
pub use held::{HeldLink, Mended};
pub use pinned::{detach, remove, stop_leading};
pub use program::{LoadFailure, fd as program_fd, hook, load};

/// What attaching came to.
#[derive(Debug)]
pub struct Attached {
    /// The links, in the order of the programs.
    pub links: Vec<HeldLink>,
    /// How many links of an earlier run had their program replaced in place.
    pub swapped: usize,
    /// How many links are new.
    pub fresh: usize,
}

/// Attaches every program to `cgroup`, with links pinned in `directory`, and ends all other links
/// of Culvert's that are pinned there. After an error, links made before it are gone again; those
/// of an earlier run stay.
pub fn attach(
    ebpf: &Ebpf,
    cgroup: &Cgroup,
    directory: &PinPath<'_>,
) -> Result<Attached, OpenError> {
    directory
        .make_directory()
        .map_err(|error| of_io(&error, &format!("creating {}", directory.display())))?;
    let mut fresh = Vec::new();
    let attached = attach_each(ebpf, cgroup, directory, &mut fresh);
    if attached.is_err() {
        for pin in fresh.iter().rev() {
            if let Err(error) = pinned::remove(pin) {
                tracing::warn!(
                    reason = error.to_string(),
                    "a link of a start that failed stays"
                );
            }
        }
        // Fails where links of an earlier run stay.
        fs::remove_dir(directory).ok();
    } else {
        pinned::remove_stale(directory);
    }
    attached
}

fn attach_each<'d>(
    ebpf: &Ebpf,
    cgroup: &Cgroup,
    directory: &PinPath<'d>,
    fresh: &mut Vec<PinPath<'d>>,
) -> Result<Attached, OpenError> {
    let mut links = Vec::with_capacity(SOCKET_PROGRAMS.len());
    for name in SOCKET_PROGRAMS {
        let pin = directory.join(name);
        let fd = if let Some(link) = swap(ebpf, name, cgroup, &pin)? {
            link
        } else {
            let link = link(ebpf, name, cgroup)?;
            take_place(&link, &pin)?;
            fresh.push(pin);
            link
        };
        links.push(HeldLink { name, fd });
    }
    Ok(Attached {
        swapped: links.len() - fresh.len(),
        fresh: fresh.len(),
        links,
    })
}

/// Replaces the program behind a pinned link, if there is one that still serves this cgroup on
/// this hook, and returns it.
fn swap(
    ebpf: &Ebpf,
    name: &str,
    cgroup: &Cgroup,
    pin: &PinPath<'_>,
) -> Result<Option<OwnedFd>, OpenError> {
    let failed =
        |what: &str, error: &io::Error| of_io(error, &format!("{what} link {}", pin.display()));
    let link = match syscalls::open_pinned(pin.as_ref()) {
        Ok(link) => link,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("opening pinned", &error)),
    };
    let present = syscalls::cgroup_link(&link).map_err(|error| failed("examining", &error))?;
    let hook = program::hook(name);
    match present {
        Some(present) if present.cgroup == cgroup.id && present.hook == hook => {}
        other => {
            tracing::warn!(
                pin = %pin.display(),
                attached_to = other.map(|link| link.cgroup),
                wanted = cgroup.id,
                hook = other.map(|link| link.hook),
                wanted_hook = hook,
                "a pinned link leads to another hook, or to another or a deleted cgroup: \
                 replacing it"
            );
            return Ok(None);
        }
    }
    syscalls::replace_program(&link, program::fd(ebpf, name)?)
        .map_err(|error| failed("replacing the program of", &error))?;
    Ok(Some(link))
}

/// Makes a new link.
fn link(ebpf: &Ebpf, name: &str, cgroup: &Cgroup) -> Result<OwnedFd, OpenError> {
    let fd = program::fd(ebpf, name)?;
    syscalls::attach(fd, &cgroup.directory, program::hook(name))
        .map_err(|error| refused(&error, name, cgroup))
}

/// Pins a link that works already over what may be pinned there, which ends. After an error, all
/// is as before.
fn take_place(link: &OwnedFd, pin: &PinPath<'_>) -> Result<(), PinError> {
    // What a crash left half made may still be attached.
    pinned::remove(&repin::beside(pin))?;
    let old = syscalls::open_pinned(pin.as_ref()).ok();
    repin::repin(link, pin)?;
    let same = |old: &OwnedFd| match (syscalls::identity(old), syscalls::identity(link)) {
        (Ok(old), Ok(new)) => old == new,
        _ => true,
    };
    let old = old.filter(|old| !same(old) && matches!(syscalls::cgroup_link(old), Ok(Some(_))));
    if let Some(Err(error)) = old.map(syscalls::detach) {
        // Nothing holds it any more, so the kernel detaches it, a little later.
        tracing::warn!(pin = %pin.display(), %error, "the link pinned before could not be detached");
    }
    Ok(())
}

/// Why the kernel did not attach a program. That is up to the host: to its kernel, its limits, or
/// to what else is attached.
fn refused(error: &io::Error, program: &str, cgroup: &Cgroup) -> OpenError {
    let path = cgroup.path.display();
    let what = format!("attaching {program} to cgroup {path}");
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EBUSY | libc::EEXIST) => OpenError::Host(format!(
            "{what}: {error}; another program may be attached to this cgroup, or to one above it, \
             such that it allows none beside it: find it with `bpftool cgroup show {path}` and \
             detach it, or have it attached with the multi flag"
        )),
        Some(libc::ENOENT) => OpenError::Host(format!(
            "{what}: {error}; the cgroup was removed: make it again, or name another one with \
             --cgroup-path"
        )),
        _ => of_kernel(&what, error, &error.to_string()),
    }
}
