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

/// How many programs were found attached, and how many not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attached {
    /// A link of an earlier run had its program replaced in place.
    pub swapped: usize,
    /// A new link was made.
    pub fresh: usize,
}

/// Attaches every program to `cgroup`, with links pinned in `directory`.
pub fn attach(ebpf: &mut Ebpf, cgroup: &Cgroup, directory: &Path) -> Result<Attached, OpenError> {
    fs::create_dir_all(directory)
        .map_err(|error| OpenError::io(&error, &format!("creating {}", directory.display())))?;
    let mut attached = Attached::default();
    for name in SOCKET_PROGRAMS {
        let mut program = program(ebpf, name)?;
        let pin = directory.join(name);
        if swap(&program, cgroup, &pin)? {
            attached.swapped += 1;
        } else {
            link(&mut program, cgroup, &pin)?;
            attached.fresh += 1;
        }
    }
    Ok(attached)
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
/// one already works.
fn link(program: &mut SocketProgram<'_>, cgroup: &Cgroup, pin: &Path) -> Result<(), OpenError> {
    let failed = |what: &str, error: &dyn Error| {
        let causes = super::with_causes(error);
        OpenError::Other(format!(
            "{what} {} at cgroup {}: {causes}",
            pin.display(),
            cgroup.path.display()
        ))
    };
    let link = program
        .attach(cgroup)
        .map_err(|error| failed("attaching", &*error))?;
    let beside = beside(pin);
    remove(&beside).map_err(OpenError::Other)?;
    let old = syscalls::open_pinned(pin).ok();
    link.pin(&beside)
        .map_err(|error| failed("pinning", &error))?;
    fs::rename(&beside, pin)
        .map_err(|error| OpenError::io(&error, &format!("pinning link {}", pin.display())))?;
    if let Some(old) = old {
        syscalls::detach(&old)
            .map_err(|error| failed("detaching the link that was pinned before as", &error))?;
    }
    Ok(())
}

fn beside(pin: &Path) -> PathBuf {
    let mut name = pin.as_os_str().to_owned();
    name.push("-next");
    name.into()
}

/// Detaches what is pinned in `directory`, last attached first. Collects what failed.
pub fn detach(directory: &Path) -> Vec<String> {
    let programs = SOCKET_PROGRAMS
        .iter()
        .rev()
        .map(|name| directory.join(name));
    // What a run that died while it replaced a link left.
    let unfinished = SOCKET_PROGRAMS
        .iter()
        .map(|name| beside(&directory.join(name)));
    let mut problems: Vec<String> = programs
        .chain(unfinished)
        .filter_map(|pin| remove(&pin).err())
        .collect();
    problems.extend(pins::remove_tree(directory).err());
    problems
}

/// Detaches and unpins a link. When this returns, its program runs no more.
fn remove(pin: &Path) -> Result<(), String> {
    if let Ok(link) = syscalls::open_pinned(pin) {
        syscalls::detach(&link)
            .map_err(|error| format!("detaching link {}: {error}", pin.display()))?;
    }
    pins::remove_tree(pin)
}
