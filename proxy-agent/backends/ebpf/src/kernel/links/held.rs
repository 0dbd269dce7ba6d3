//! Links that the agent holds open: they work whatever becomes of their pins, and what became of
//! them can be told and mended.

use std::{fmt, os::fd::OwnedFd};

use aya::Ebpf;
use proxy_model::{Difference, DifferenceKind, Problem};

use super::{
    super::{
        OpenError,
        cgroup::Cgroup,
        pins::{PinPath, repin},
        syscalls,
    },
    link, program, take_place,
};
use crate::kernel::error::of_io;

/// The link of a program.
#[derive(Debug)]
pub struct HeldLink {
    /// The program's name, and that of the pin.
    pub name: &'static str,
    /// The link.
    pub fd: OwnedFd,
}

/// What mending came to.
#[derive(Debug, Default)]
pub struct Mended {
    /// What differed and is as it should be now.
    pub repaired: Vec<Difference>,
    /// What could not be mended, and why.
    pub problems: Vec<Problem>,
}

impl Mended {
    /// Notes what became of a pin that differed: without it, the next agent does not find what is
    /// in force.
    pub fn note_pin(&mut self, difference: Difference, result: Result<(), impl fmt::Display>) {
        self.note(difference, result, false);
    }

    fn note(&mut self, difference: Difference, result: Result<(), impl fmt::Display>, harms: bool) {
        match result {
            Ok(()) => self.repaired.push(difference),
            Err(error) => self.problem(error, harms),
        }
    }

    fn problem(&mut self, error: impl fmt::Display, harms: bool) {
        let reason = error.to_string();
        self.problems.push(Problem { reason, harms });
    }
}

impl HeldLink {
    /// Id of the program behind it.
    pub fn program(&self) -> Option<u32> {
        let link = syscalls::cgroup_link(&self.fd).ok()??;
        Some(link.program)
    }

    /// What is wrong with the attachment, and with the pin in `directory`.
    pub fn differences(
        &self,
        ebpf: &Ebpf,
        cgroup: &Cgroup,
        directory: &PinPath<'_>,
    ) -> Result<Vec<Difference>, OpenError> {
        let (attachment, pin) = (self.attachment(ebpf, cgroup)?, self.pin(directory));
        Ok(attachment.into_iter().chain(pin).collect())
    }

    /// Mends what is wrong; leaves pins alone without a `directory`. A program that still runs
    /// goes on until its successor does.
    pub fn mend(
        &mut self,
        ebpf: &Ebpf,
        cgroup: &Cgroup,
        directory: Option<&PinPath<'_>>,
        mended: &mut Mended,
    ) {
        match self.attachment(ebpf, cgroup) {
            Ok(Some(difference)) => {
                let result = match difference.kind {
                    DifferenceKind::Replaced => self.put_back(ebpf),
                    _ => self.attach_anew(ebpf, cgroup, directory),
                };
                mended.note(difference, result, true);
            }
            Ok(None) => {}
            Err(error) => mended.problem(error, true),
        }
        if let Some(directory) = directory
            && let Some(difference) = self.pin(directory)
        {
            // What stands there may be another of these links: it must not be detached.
            mended.note_pin(
                difference,
                repin::repin(&self.fd, &directory.join(self.name)),
            );
        }
    }

    fn attachment(&self, ebpf: &Ebpf, cgroup: &Cgroup) -> Result<Option<Difference>, OpenError> {
        let failed = |error: &_| of_io(error, &format!("examining {}", self.object()));
        let present = syscalls::cgroup_link(&self.fd).map_err(|error| failed(&error))?;
        let ours = syscalls::identity(program::fd(ebpf, self.name)?);
        let ours = ours.map_err(|error| failed(&error))?.id;
        let (kind, wanted, found) = match present {
            Some(link) if link.cgroup == cgroup.id && link.program == ours => return Ok(None),
            Some(link) if link.cgroup == cgroup.id => (
                DifferenceKind::Replaced,
                format!("program {ours}"),
                format!("program {}", link.program),
            ),
            other => (
                DifferenceKind::Detached,
                format!("attached to cgroup {}", cgroup.path.display()),
                match other.map(|link| link.cgroup) {
                    // The kernel's word for a cgroup that is gone, or a link that was detached.
                    None | Some(0) => "attached to nothing".to_owned(),
                    Some(id) => format!("attached to the cgroup with inode {id}"),
                },
            ),
        };
        Ok(Some(Difference {
            object: self.object(),
            kind,
            service: None,
            wanted: Some(wanted),
            found: Some(found),
        }))
    }

    fn pin(&self, directory: &PinPath<'_>) -> Option<Difference> {
        repin::difference(&self.fd, &self.object(), &directory.join(self.name))
    }

    fn put_back(&self, ebpf: &Ebpf) -> Result<(), OpenError> {
        syscalls::replace_program(&self.fd, program::fd(ebpf, self.name)?).map_err(|error| {
            of_io(
                &error,
                &format!("replacing the program of {}", self.object()),
            )
        })
    }

    /// The new link works before the old one is let go. Where it cannot be pinned that is told by
    /// the pin's own difference.
    fn attach_anew(
        &mut self,
        ebpf: &Ebpf,
        cgroup: &Cgroup,
        directory: Option<&PinPath<'_>>,
    ) -> Result<(), OpenError> {
        let pinned_in = directory.filter(|directory| self.pin(directory).is_none());
        let old = std::mem::replace(&mut self.fd, link(ebpf, self.name, cgroup)?);
        if let Some(directory) = pinned_in {
            take_place(&self.fd, &directory.join(self.name))?;
        } else if let Err(error) = syscalls::detach(old) {
            tracing::debug!(link = self.name, %error, "the old link could not be detached");
        }
        Ok(())
    }

    fn object(&self) -> String {
        format!("link {}", self.name)
    }
}
