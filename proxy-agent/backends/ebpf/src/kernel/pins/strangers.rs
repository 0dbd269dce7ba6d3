//! What users without rights made where pins belong: told from what an agent made, and put aside
//! without going into it.

use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd, AsRawFd as _},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, openat},
    sys::stat::{FileStat, Mode, fstat, fstatat},
    unistd::{UnlinkatFlags, geteuid, unlinkat},
};
use proxy_common::names::SOCKET_PROGRAMS;
use rustix::fs::{RenameFlags, renameat_with};

use super::super::syscalls;

/// Names that are tried for what is put aside.
const NAMES: u32 = 1000;

/// Whether root or this process's user owns it: who else does is a stranger.
pub fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == geteuid().as_raw()
}

/// Whether `name` is a directory by whose links programs are attached: those only somebody with
/// the rights of an agent can have made. Nothing is followed: a name there may lead to a pin of
/// another program.
pub fn serve(parent: impl AsFd, name: &Path) -> bool {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let open = |parent: std::os::fd::BorrowedFd<'_>, name: &Path| {
        openat(parent, name, flags, Mode::empty())
    };
    let links = open(parent.as_fd(), name).and_then(|found| open(found.as_fd(), "links".as_ref()));
    let Ok(links) = links else {
        return false;
    };
    SOCKET_PROGRAMS.iter().any(|program| {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let Ok(pin) = openat(&links, *program, flags, Mode::empty()) else {
            return false;
        };
        let is_pin = fstat(&pin).is_ok_and(|pin| pin.st_mode & libc::S_IFMT == libc::S_IFREG);
        let at = format!("/proc/self/fd/{}", pin.as_raw_fd());
        let link = || syscalls::open_pinned(at.as_ref()).and_then(syscalls::cgroup_link);
        is_pin && matches!(link(), Ok(Some(link)) if link.cgroup != 0)
    })
}

/// Removes `name`, or gives it another name if that cannot be done without going into it: returns
/// that. What is gone meanwhile is fine.
pub fn put_aside(parent: &File, name: &Path, owner: u32) -> nix::Result<Option<PathBuf>> {
    let gone = |result| match result {
        Err(Errno::ENOENT) => Ok(()),
        result => result,
    };
    let there: FileStat = match fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Err(Errno::ENOENT) => return Ok(None),
        there => there?,
    };
    if there.st_mode & libc::S_IFMT != libc::S_IFDIR {
        return gone(unlinkat(parent, name, UnlinkatFlags::NoRemoveDir)).map(|()| None);
    }
    match gone(unlinkat(parent, name, UnlinkatFlags::RemoveDir)) {
        Err(Errno::ENOTEMPTY) => {}
        removed => return removed.map(|()| None),
    }
    // A name on bpffs has no dot.
    for number in 0..NAMES {
        let mut aside = name.as_os_str().to_owned();
        aside.push(format!("-of-user-{owner}-{number}"));
        let aside = PathBuf::from(aside);
        // By a call of its own: nix has it for glibc alone, and images hold musl.
        let moved = renameat_with(parent, name, parent, &aside, RenameFlags::NOREPLACE);
        match moved.map_err(|error| Errno::from_raw(error.raw_os_error())) {
            Err(Errno::EEXIST) => {}
            moved => return gone(moved).map(|()| Some(aside)),
        }
    }
    Err(Errno::EEXIST)
}

/// Puts aside what others own in a directory of ours, if `is_ours` says that its name is: they can
/// have put it there before it was closed to them. Returns the names.
pub fn expel(directory: &File, is_ours: impl Fn(&Path) -> bool) -> io::Result<Vec<PathBuf>> {
    let mut expelled = Vec::new();
    for entry in fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()))? {
        let name = PathBuf::from(entry?.file_name());
        if !is_ours(&name) {
            continue;
        }
        let owner = match fstatat(directory, &name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => continue,
            there => there?.st_uid,
        };
        if !is_trusted(owner) {
            put_aside(directory, &name, owner)?;
            expelled.push(name);
        }
    }
    Ok(expelled)
}
