//! Attaches the programs to a cgroup so that they stay attached when the agent ends, and puts new
//! programs in the place of old ones without a gap.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use aya::{
    Ebpf,
    programs::{CgroupAttachMode, CgroupSockAddr, links::FdLink},
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
        let program = program(ebpf, name)?;
        let pin = directory.join(name);
        if swap(program, cgroup, &pin)? {
            attached.swapped += 1;
        } else {
            link(program, cgroup, &pin)?;
            attached.fresh += 1;
        }
    }
    Ok(attached)
}

/// The loaded program `name`.
pub fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut CgroupSockAddr, OpenError> {
    ebpf.program_mut(name)
        .and_then(|program| program.try_into().ok())
        .ok_or_else(|| OpenError::Other(format!("the kernel object has no program {name}")))
}

/// Replaces the program behind a pinned link, if there is one that still serves this cgroup.
fn swap(program: &CgroupSockAddr, cgroup: &Cgroup, pin: &Path) -> Result<bool, OpenError> {
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
fn link(program: &mut CgroupSockAddr, cgroup: &Cgroup, pin: &Path) -> Result<(), OpenError> {
    let failed = |what: &str, error: &dyn std::error::Error| {
        let causes = super::with_causes(error);
        OpenError::Other(format!(
            "{what} {} at cgroup {}: {causes}",
            pin.display(),
            cgroup.path.display()
        ))
    };
    let id = program
        .attach(&cgroup.directory, CgroupAttachMode::Single)
        .map_err(|error| failed("attaching", &error))?;
    let link = program
        .take_link(id)
        .map_err(|error| failed("attaching", &error))?;
    let link = FdLink::try_from(link).map_err(|error| failed("attaching", &error))?;
    let beside = beside(pin);
    pins::remove_tree(&beside).map_err(OpenError::Other)?;
    link.pin(&beside)
        .map_err(|error| failed("pinning", &error))?;
    fs::rename(&beside, pin)
        .map_err(|error| OpenError::io(&error, &format!("pinning link {}", pin.display())))
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
    let mut problems: Vec<String> = programs
        .filter_map(|pin| pins::remove_tree(&pin).err())
        .collect();
    problems.extend(pins::remove_tree(directory).err());
    problems
}
