//! A program on a device by a link that is held and pinned (Linux 6.6).

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use super::{Direction, Hook, Program, TcError, pinned};
use crate::kernel::{
    links,
    pins::{PinPath, repin},
    syscalls::{self, TcxHook},
};

/// The kernel's number for a direction.
pub fn hook(direction: Direction) -> TcxHook {
    match direction {
        Direction::Ingress => TcxHook::Ingress,
        Direction::Egress => TcxHook::Egress,
    }
}

/// Whether the kernel has links to devices.
pub fn is_there(at: &Hook) -> Result<bool, TcError> {
    let there = syscalls::on_device(at.index, hook(at.direction));
    let there = there.map_err(at.refused("asking which programs are at"))?;
    Ok(there.is_some())
}

/// Attaches a program, or puts it behind the link of an earlier agent.
pub fn attach(
    at: &Hook,
    program: Program<'_>,
    directory: &PinPath<'_>,
) -> Result<OwnedFd, TcError> {
    let pin = pinned::link(directory, at.index, at.direction);
    if let Some(link) = pinned_before(at, &pin)? {
        replace(at, &link, program)?;
        return Ok(link);
    }
    let link = anew(at, program)?;
    // What a crash left half made may still be attached.
    links::remove(&repin::beside(&pin))?;
    repin::repin(&link, &pin)?;
    Ok(link)
}

/// The link that an earlier agent pinned, if it leads here. Any other ends.
fn pinned_before(at: &Hook, pin: &PinPath<'_>) -> Result<Option<OwnedFd>, TcError> {
    let failed = at.refused("opening the pinned link to");
    let link = match syscalls::open_pinned(pin.as_ref()) {
        Ok(link) => link,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if leads_here(at, &link)? {
        return Ok(Some(link));
    }
    tracing::info!(pin = %pin.display(), "a pinned link leads to a device that is gone: replacing it");
    links::remove(pin)?;
    Ok(None)
}

/// Whether a link is attached here. A device that was moved to another network namespace keeps its
/// number and its links, so only the device of that number here can tell.
fn leads_here(at: &Hook, link: &OwnedFd) -> Result<bool, TcError> {
    let failed = at.refused("examining the link to");
    if !matches!(syscalls::tcx_link(link).map_err(failed)?, Some(link) if link.device == at.index) {
        return Ok(false);
    }
    let id = syscalls::identity(link).map_err(failed)?.id;
    let here = syscalls::on_device(at.index, hook(at.direction)).map_err(failed)?;
    let mut here = here.into_iter().flatten();
    Ok(here.any(|one| one.link == Some(id)))
}

/// Puts `program` behind the link; makes another link where this one was detached, and pins it again.
pub fn mend(
    at: &Hook,
    link: &mut OwnedFd,
    program: Program<'_>,
    directory: &PinPath<'_>,
) -> Result<(), TcError> {
    if leads_here(at, link)? {
        replace(at, link, program)?;
    } else {
        *link = anew(at, program)?;
    }
    if !is_pinned(at, &*link, directory) {
        repin::repin(&*link, &pinned::link(directory, at.index, at.direction))?;
    }
    Ok(())
}

fn anew(at: &Hook, program: Program<'_>) -> Result<OwnedFd, TcError> {
    syscalls::attach_tcx(program.fd, at.index, hook(at.direction))
        .map_err(at.refused("attaching a program to"))
}

fn replace(at: &Hook, link: &OwnedFd, program: Program<'_>) -> Result<(), TcError> {
    syscalls::replace_program(link, program.fd).map_err(at.refused("replacing the program at"))
}

/// Whether the pin leads to this link.
pub fn is_pinned(at: &Hook, link: impl AsFd, directory: &PinPath<'_>) -> bool {
    let pin = pinned::link(directory, at.index, at.direction);
    repin::difference(link, "link", &pin).is_none()
}

/// Detaches the link, and removes its pin, but not one that leads elsewhere by now.
pub fn detach(at: &Hook, link: &OwnedFd, directory: &PinPath<'_>) -> Result<(), TcError> {
    let is_pinned = is_pinned(at, link, directory);
    syscalls::detach(link).map_err(at.refused("detaching the program from"))?;
    if is_pinned {
        links::remove(&pinned::link(directory, at.index, at.direction))?;
    }
    Ok(())
}
