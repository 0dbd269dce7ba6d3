//! Attaches the programs to a cgroup so that they stay attached when the agent ends, and puts new
//! programs in the place of old ones without a gap.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
};

use aya::{
    Ebpf,
    programs::{
        CgroupAttachMode, CgroupSock, CgroupSockAddr, Program, ProgramError, ProgramFd,
        links::FdLink,
    },
};
use proxy_common::names::SOCKET_PROGRAMS;

use super::{OpenError, cgroup::Cgroup, pins, syscalls};

/// What the names of all programs begin with, in every version: what is called otherwise among the
/// links is somebody else's.
const PREFIX: &str = "culvert_";

/// How many programs were found attached, and how many not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attached {
    /// A link of an earlier run had its program replaced in place.
    pub swapped: usize,
    /// A new link was made.
    pub fresh: usize,
}

/// Attaches every program to `cgroup`, with links pinned in `directory`, and ends all other links
/// of Culvert's that are pinned there. After an error, links made before it are gone again; those
/// of an earlier run stay.
pub fn attach(ebpf: &mut Ebpf, cgroup: &Cgroup, directory: &Path) -> Result<Attached, OpenError> {
    fs::create_dir_all(directory)
        .map_err(|error| OpenError::io(&error, &format!("creating {}", directory.display())))?;
    let mut fresh = Vec::new();
    let attached = attach_each(ebpf, cgroup, directory, &mut fresh);
    if attached.is_err() {
        for pin in fresh.iter().rev() {
            if let Err(reason) = remove(pin) {
                tracing::warn!(reason, "a link of a start that failed stays");
            }
        }
        // Fails where links of an earlier run stay.
        fs::remove_dir(directory).ok();
    } else {
        remove_stale(directory);
    }
    attached
}

fn attach_each(
    ebpf: &mut Ebpf,
    cgroup: &Cgroup,
    directory: &Path,
    fresh: &mut Vec<PathBuf>,
) -> Result<Attached, OpenError> {
    let mut swapped = 0;
    for name in SOCKET_PROGRAMS {
        let mut program = program(ebpf, name)?;
        let pin = directory.join(name);
        if swap(&program, cgroup, &pin)? {
            swapped += 1;
        } else {
            link(&mut program, cgroup, &pin)?;
            fresh.push(pin);
        }
    }
    Ok(Attached {
        swapped,
        fresh: fresh.len(),
    })
}

/// Ends links of programs that this version does not have, and what a crash left half made.
fn remove_stale(directory: &Path) {
    let stale = pinned(directory).map(|pins| {
        let ours = SOCKET_PROGRAMS.map(|name| directory.join(name));
        pins.into_iter().filter(move |pin| !ours.contains(pin))
    });
    let problems: Vec<String> = match stale {
        Ok(stale) => stale
            .filter_map(|pin| {
                tracing::info!(pin = %pin.display(), "detaching a link that is not of this version");
                remove(&pin).err()
            })
            .collect(),
        Err(reason) => vec![reason],
    };
    for reason in problems {
        tracing::warn!(reason, "a link that is not of this version may stay");
    }
}

/// A program of the object.
pub enum SocketProgram<'a> {
    /// On a hook that may rewrite an address.
    Address(&'a mut CgroupSockAddr),
    /// On a hook that only looks at the socket.
    Socket(&'a mut CgroupSock),
}

/// The program `name`.
pub fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<SocketProgram<'a>, OpenError> {
    match ebpf.program_mut(name) {
        Some(Program::CgroupSockAddr(program)) => Ok(SocketProgram::Address(program)),
        Some(Program::CgroupSock(program)) => Ok(SocketProgram::Socket(program)),
        _ => Err(OpenError::Other(format!(
            "the kernel object has no program {name}"
        ))),
    }
}

impl SocketProgram<'_> {
    /// Loads the program into the kernel.
    pub fn load(&mut self) -> Result<(), ProgramError> {
        match self {
            Self::Address(program) => program.load(),
            Self::Socket(program) => program.load(),
        }
    }

    fn fd(&self) -> Result<&ProgramFd, ProgramError> {
        match self {
            Self::Address(program) => program.fd(),
            Self::Socket(program) => program.fd(),
        }
    }

    /// A new link to the cgroup, ours to keep.
    fn attach(&mut self, cgroup: &Cgroup) -> Result<FdLink, Box<dyn Error>> {
        // A link always allows others beside it; this mode says nothing more, and the kernel
        // refuses any that does.
        const MODE: CgroupAttachMode = CgroupAttachMode::Single;
        let link = match self {
            Self::Address(program) => {
                let id = program.attach(&cgroup.directory, MODE)?;
                FdLink::try_from(program.take_link(id)?)
            }
            Self::Socket(program) => {
                let id = program.attach(&cgroup.directory, MODE)?;
                FdLink::try_from(program.take_link(id)?)
            }
        };
        // Since Linux 5.7 every attachment is a link.
        Ok(link?)
    }
}

/// Replaces the program behind a pinned link, if there is one that still serves this cgroup.
fn swap(program: &SocketProgram<'_>, cgroup: &Cgroup, pin: &Path) -> Result<bool, OpenError> {
    let failed = |what: &str, error: &io::Error| {
        OpenError::io(error, &format!("{what} link {}", pin.display()))
    };
    let link = match syscalls::open_pinned(pin) {
        Ok(link) => link,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed("opening pinned", &error)),
    };
    let present = syscalls::cgroup_link(&link).map_err(|error| failed("examining", &error))?;
    match present {
        Some(present) if present.cgroup == cgroup.id => {}
        other => {
            tracing::warn!(
                pin = %pin.display(),
                attached_to = other.map(|link| link.cgroup),
                wanted = cgroup.id,
                "a pinned link leads to another or a deleted cgroup: replacing it"
            );
            return Ok(false);
        }
    }
    let program = program
        .fd()
        .map_err(|error| OpenError::Other(format!("program of {}: {error}", pin.display())))?;
    syscalls::replace_program(&link, program)
        .map_err(|error| failed("replacing the program of", &error))?;
    Ok(true)
}

/// Makes a new link and pins it, over what may be pinned there: the old link ends when the new
/// one already works. After an error, all is as before.
fn link(program: &mut SocketProgram<'_>, cgroup: &Cgroup, pin: &Path) -> Result<(), OpenError> {
    let link = program
        .attach(cgroup)
        .map_err(|error| refused(&*error, pin, cgroup))?;
    let failed = |error: &dyn Error| {
        let causes = super::with_causes(error);
        OpenError::Other(format!("pinning link {}: {causes}", pin.display()))
    };
    let beside = beside(pin);
    remove(&beside).map_err(OpenError::Other)?;
    let old = syscalls::open_pinned(pin).ok();
    let new = link.pin(&beside).map_err(|error| failed(&error))?;
    if let Err(error) = fs::rename(&beside, pin) {
        drop(new);
        remove(&beside).map_err(OpenError::Other)?;
        return Err(failed(&error));
    }
    if let Some(Err(error)) = old.map(syscalls::detach) {
        // Nothing holds it any more, so the kernel detaches it, a little later.
        tracing::warn!(pin = %pin.display(), %error, "the link pinned before could not be detached");
    }
    Ok(())
}

/// Why the kernel did not attach the program of `pin`. That is up to the host: to its kernel, its
/// limits, or to what else is attached.
fn refused(error: &(dyn Error + 'static), pin: &Path, cgroup: &Cgroup) -> OpenError {
    let program = pin.file_name().unwrap_or_default().display();
    let path = cgroup.path.display();
    let causes = super::with_causes(error);
    let what = format!("attaching {program} to cgroup {path}: {causes}");
    let errno = std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| {
        (*error).source()
    })
    .find_map(|error| error.downcast_ref::<io::Error>()?.raw_os_error());
    match errno {
        Some(libc::EPERM | libc::EBUSY | libc::EEXIST) => OpenError::Host(format!(
            "{what}; another program may be attached to this cgroup, or to one above it, such that \
             it allows none beside it: find it with `bpftool cgroup show {path}` and detach it, or \
             have it attached with the multi flag"
        )),
        Some(_) => OpenError::kernel(&format!("attaching {program} to cgroup {path}"), &causes),
        None => OpenError::Other(what),
    }
}

fn beside(pin: &Path) -> PathBuf {
    let mut name = pin.as_os_str().to_owned();
    name.push("-next");
    name.into()
}

/// Detaches and unpins the links of every version in `directory`, last attached first. Collects
/// what failed.
pub fn detach(directory: &Path) -> Vec<String> {
    let pins = match pinned(directory) {
        Ok(pins) => pins,
        Err(reason) => return vec![reason],
    };
    let ours = SOCKET_PROGRAMS.map(|name| directory.join(name));
    let (mut ours, others): (Vec<_>, Vec<_>) = pins
        .into_iter()
        .map(|pin| (ours.iter().position(|path| *path == pin), pin))
        .partition(|(position, _)| position.is_some());
    ours.sort_by(|one, other| other.cmp(one));
    ours.iter()
        .chain(&others)
        .filter_map(|(_, pin)| remove(pin).err())
        .collect()
}

/// What is pinned in `directory` under a name that Culvert gives, sorted.
fn pinned(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(Iterator::collect::<io::Result<Vec<_>>>),
    };
    let entries = entries.map_err(|error| format!("reading {}: {error}", directory.display()))?;
    let mut pins: Vec<_> = entries
        .iter()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter(|entry| {
            entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(PREFIX.as_bytes())
        })
        .map(fs::DirEntry::path)
        .collect();
    pins.sort();
    Ok(pins)
}

/// Detaches and unpins a link. When this returns, its program runs no more.
fn remove(pin: &Path) -> Result<(), String> {
    if let Ok(link) = syscalls::open_pinned(pin) {
        syscalls::detach(&link)
            .map_err(|error| format!("detaching link {}: {error}", pin.display()))?;
    }
    pins::remove_tree(pin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_the_name_of_one() {
        for name in SOCKET_PROGRAMS {
            assert!(name.starts_with(PREFIX), "{name}");
        }
    }
}
