//! Which programs are on a device, by whomever, in the order in which they run. Only looks.

use std::io;

use proxy_netlink::route::{FilterPlace, Link, RouteSocket};

use super::{Direction, Hook, PREFIX, TcError, clsact, tcx};
use crate::kernel::syscalls;

/// A program on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where.
    pub hook: Hook,
    /// Its id.
    pub program: u32,
    /// Its name, as far as the kernel keeps it; none where this process may not ask.
    pub name: Option<String>,
    /// How it is attached.
    pub by: By,
}

/// How a program is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// By the link with this id, or without one.
    Tcx(Option<u32>),
    /// As the filter at this place.
    Clsact(FilterPlace),
}

impl Found {
    /// Whether it is Culvert's, of any agent and version.
    pub fn is_ours(&self) -> bool {
        let name = self.name.as_deref();
        name.is_some_and(|name| name.starts_with(PREFIX))
    }
}

/// The programs on a device in both directions. The kernel runs those by links before filters.
/// `has_filters` says whether a qdisc is there that filters hang on.
pub fn on_device(
    link: &Link,
    has_filters: bool,
    route: &mut RouteSocket,
) -> Result<Vec<Found>, TcError> {
    let mut all = Vec::new();
    for direction in Direction::BOTH {
        let hook = Hook {
            index: link.index,
            device: link.name.clone(),
            direction,
        };
        all.extend(by_tcx(&hook)?);
        if has_filters {
            all.extend(by_clsact(&hook, route)?);
        }
    }
    Ok(all)
}

/// Those that are attached by links, or as such; none where the kernel has no such hooks or the device
/// is gone.
pub fn by_tcx(at: &Hook) -> Result<Vec<Found>, TcError> {
    let there = match syscalls::on_device(at.index, tcx::hook(at.direction)) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => None,
        // Who may not ask finds ours by their pins.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
        there => there.map_err(at.refused("asking which programs are at"))?,
    };
    let found = there.into_iter().flatten().map(|one| Found {
        hook: at.clone(),
        program: one.program,
        name: syscalls::program_name(one.program).ok(),
        by: By::Tcx(one.link),
    });
    Ok(found.collect())
}

/// Those that are filters.
pub fn by_clsact(at: &Hook, route: &mut RouteSocket) -> Result<Vec<Found>, TcError> {
    let filters = clsact::filters(at, route)?.into_iter();
    let found = filters.filter_map(|filter| {
        let bpf = filter.bpf?;
        let name = bpf.name.map(|name| name.escape_debug().to_string());
        Some(Found {
            hook: at.clone(),
            program: bpf.program,
            name: name.or_else(|| syscalls::program_name(bpf.program).ok()),
            by: By::Clsact(filter.place),
        })
    });
    Ok(found.collect())
}
