//! One program on the packets of one device in one direction: attached so that it stays when the agent
//! ends, replaced without a gap, examined, detached. Knows no packet, and no reason to serve a device.
//!
//! From Linux 6.6 a link leads to the device (`tcx`), pinned by the number of the device; on older
//! kernels the program is a filter (`clsact`), which needs no pin. Programs of others stay as they are.

mod clsact;
mod error;
mod found;
pub mod pinned;
pub mod sweep;
mod tcx;
#[cfg(test)]
mod tests;

use std::{
    fmt, io,
    os::fd::{BorrowedFd, OwnedFd},
};

pub use error::TcError;
pub use found::{By, Found, on_device};
pub use proxy_netlink::route::Direction;
use proxy_netlink::route::RouteSocket;

use super::{pins::PinPath, syscalls};

/// What the names of all programs begin with, in every version.
const PREFIX: &str = "culvert_";

/// The packets of a device in one direction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hook {
    /// The number of the device.
    pub index: u32,
    /// Its name, for people: it can be given to another one.
    pub device: String,
    /// Which packets.
    pub direction: Direction,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            index,
            device,
            direction,
        } = self;
        write!(f, "{direction} of {device} (device {index})")
    }
}

impl Hook {
    fn refused(&self, what: &'static str) -> impl Fn(io::Error) -> TcError + Copy + '_ {
        move |error| TcError::Refused {
            what,
            hook: self.clone(),
            error,
        }
    }
}

/// A program, and what it is called.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// `culvert_eth_in` or another.
    pub name: &'a str,
    /// It is loaded.
    pub fd: BorrowedFd<'a>,
}

/// A program that is attached.
#[derive(Debug)]
pub struct Attached {
    hook: Hook,
    way: Way,
}

/// How.
#[derive(Debug)]
enum Way {
    /// By a link, which is held besides being pinned.
    Tcx(OwnedFd),
    /// As a filter.
    Clsact,
}

/// What became of an attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// Whether it is as it should be.
    pub state: State,
    /// Programs of others that meet packets before ours, in the order in which they run; all of them
    /// where ours is not attached.
    pub before: Vec<Found>,
}

/// Whether a program is attached as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It is.
    InForce,
    /// The program with this id is in its place.
    Replaced(u32),
    /// It is attached to this device no more, or the device is gone.
    Detached,
}

/// Attaches `program` before all others. What an earlier agent left at this place, pinned in
/// `directory`, has its program replaced: each packet meets one of the two.
pub fn attach(
    hook: &Hook,
    program: Program<'_>,
    directory: &PinPath<'_>,
    route: &mut RouteSocket,
) -> Result<Attached, TcError> {
    let way = if tcx::is_there(hook)? {
        Way::Tcx(tcx::attach(hook, program, directory)?)
    } else {
        clsact::attach(hook, program, directory, route)?;
        Way::Clsact
    };
    Ok(Attached {
        hook: hook.clone(),
        way,
    })
}

impl Attached {
    /// Puts `program` in the place of what is attached, without a gap; attaches it anew, and pins it
    /// again, where somebody undid that.
    pub fn mend(
        &mut self,
        program: Program<'_>,
        directory: &PinPath<'_>,
        route: &mut RouteSocket,
    ) -> Result<(), TcError> {
        match &mut self.way {
            Way::Tcx(link) => tcx::mend(&self.hook, link, program, directory),
            Way::Clsact => clsact::attach(&self.hook, program, directory, route),
        }
    }

    /// Whether `program` is attached as it should be, and what is before it.
    pub fn present(
        &self,
        program: Program<'_>,
        route: &mut RouteSocket,
    ) -> Result<Present, TcError> {
        let failed = self.hook.refused("examining the program at");
        let wanted = syscalls::identity(program.fd).map_err(failed)?.id;
        let ours = self.by()?;
        let all = match &self.way {
            Way::Tcx(_) => found::by_tcx(&self.hook)?,
            Way::Clsact => found::by_clsact(&self.hook, route)?,
        };
        let at = all.iter().position(|found| found.by == ours);
        let state = match at.map(|at| all[at].program) {
            Some(program) if program == wanted => State::InForce,
            Some(program) => State::Replaced(program),
            None => State::Detached,
        };
        let mut before = all;
        before.truncate(at.unwrap_or(usize::MAX));
        Ok(Present { state, before })
    }

    /// How it is attached.
    fn by(&self) -> Result<By, TcError> {
        match &self.way {
            Way::Tcx(link) => {
                let link = syscalls::identity(link).map_err(self.hook.refused("examining"))?;
                Ok(By::Tcx(Some(link.id)))
            }
            Way::Clsact => Ok(By::Clsact(clsact::place(&self.hook))),
        }
    }

    /// Whether the next agent finds it.
    pub fn is_pinned(&self, directory: &PinPath<'_>) -> bool {
        match &self.way {
            Way::Tcx(link) => tcx::is_pinned(&self.hook, link, directory),
            Way::Clsact => true,
        }
    }

    /// Takes it off the device. A device that is gone is fine.
    pub fn detach(self, directory: &PinPath<'_>, route: &mut RouteSocket) -> Result<(), TcError> {
        match &self.way {
            Way::Tcx(link) => tcx::detach(&self.hook, link, directory),
            Way::Clsact => clsact::detach(&self.hook, directory, route),
        }
    }
}
