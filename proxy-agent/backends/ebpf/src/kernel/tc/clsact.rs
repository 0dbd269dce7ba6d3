//! A program on a device as a filter, for kernels without links to devices (before Linux 6.6). Nothing
//! of it is held: it stays while the device does.

use std::io;

use proxy_netlink::route::{Filter, FilterPlace, RouteSocket};

use super::{Direction, Hook, PREFIX, Program, TcError, pinned::Note};
use crate::kernel::pins::PinPath;

/// Before all others.
const PRIORITY: u16 = 1;
/// Tells ours from others of this priority.
const HANDLE: u32 = 0xc;

/// Where our filter is.
pub fn place(at: &Hook) -> FilterPlace {
    FilterPlace {
        device: at.index,
        direction: at.direction,
        priority: PRIORITY,
        handle: HANDLE,
    }
}

/// Puts a program on a device, or in the place of the one that is there. Makes what it hangs on where
/// that is missing, and notes so in `directory`.
pub fn attach(
    at: &Hook,
    program: Program<'_>,
    directory: &PinPath<'_>,
    route: &mut RouteSocket,
) -> Result<(), TcError> {
    make_qdisc(at, directory, route)?;
    let put = put(at, program, route);
    if put.is_err() {
        remove_qdisc(at, directory, route).ok();
    }
    put
}

fn put(at: &Hook, program: Program<'_>, route: &mut RouteSocket) -> Result<(), TcError> {
    let refused = at.refused("putting a filter on");
    let there = filters(at, route)?;
    if let Some(clash) = there.iter().find(|filter| clashes(filter)) {
        return Err(TcError::Taken {
            hook: at.clone(),
            whose: describe(clash),
        });
    }
    if there.iter().any(is_ours) {
        route
            .replace_filter(place(at), program.fd, program.name)
            .map_err(refused)
    } else {
        route
            .add_filter(place(at), program.fd, program.name)
            .map_err(refused)
    }
}

fn make_qdisc(at: &Hook, directory: &PinPath<'_>, route: &mut RouteSocket) -> Result<(), TcError> {
    let failed = at.refused("making a clsact qdisc for");
    let qdiscs = route.qdiscs().map_err(failed)?;
    match qdiscs.iter().find(|qdisc| qdisc.device == at.index) {
        Some(qdisc) if qdisc.is_clsact() => return Ok(()),
        Some(_) => return Err(TcError::IngressOnly(at.clone())),
        None => {}
    }
    // The note comes first: without it, what a crash leaves would stay for ever.
    Note::OwnQdisc.make(directory, at.index)?;
    match route.add_clsact(at.index) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
            // Somebody was faster.
            Note::OwnQdisc.forget(directory, at.index)?;
            Ok(())
        }
        Err(error) => {
            Note::OwnQdisc.forget(directory, at.index).ok();
            Err(failed(error))
        }
        Ok(()) => Ok(()),
    }
}

/// Takes our filter off the device, and what it hung on if that is Culvert's own and nothing else
/// hangs there.
pub fn detach(at: &Hook, directory: &PinPath<'_>, route: &mut RouteSocket) -> Result<(), TcError> {
    // Never one of others, which may be at our place by now.
    if filters(at, route)?.iter().any(is_ours) {
        let deleted = route.delete_filter(place(at));
        gone_is_fine(deleted).map_err(at.refused("removing the filter from"))?;
    }
    remove_qdisc(at, directory, route)
}

/// Removes the clsact of a device if it is Culvert's own and empty.
pub fn remove_qdisc(
    at: &Hook,
    directory: &PinPath<'_>,
    route: &mut RouteSocket,
) -> Result<(), TcError> {
    if !Note::OwnQdisc.is_there(directory, at.index) {
        return Ok(());
    }
    for direction in Direction::BOTH {
        let hook = Hook {
            direction,
            ..at.clone()
        };
        if !filters(&hook, route)?.is_empty() {
            return Ok(());
        }
    }
    let deleted = route.delete_clsact(at.index);
    gone_is_fine(deleted).map_err(at.refused("removing the clsact qdisc from"))?;
    Ok(Note::OwnQdisc.forget(directory, at.index)?)
}

/// What is to be removed may be gone: with its device, or by somebody's hand.
pub fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::ENOENT | libc::ENODEV | libc::EINVAL)
            ) =>
        {
            Ok(())
        }
        result => result,
    }
}

pub fn filters(at: &Hook, route: &mut RouteSocket) -> Result<Vec<Filter>, TcError> {
    route
        .filters(at.index, at.direction)
        .map_err(at.refused("listing the filters of"))
}

/// Whether a filter is one of Culvert's, of any version.
pub fn is_ours(filter: &Filter) -> bool {
    let name = filter.bpf.as_ref().and_then(|bpf| bpf.name.as_deref());
    is_at_our_place(filter) && name.is_some_and(|name| name.starts_with(PREFIX))
}

fn is_at_our_place(filter: &Filter) -> bool {
    let place = filter.place;
    (place.priority, place.handle, filter.chain) == (PRIORITY, HANDLE, 0)
}

/// Whether ours cannot be beside it: a priority has filters of one kind, for one protocol.
fn clashes(filter: &Filter) -> bool {
    let is_other = filter.bpf.is_none() || !filter.sees_all() || is_at_our_place(filter);
    filter.place.priority == PRIORITY && filter.chain == 0 && is_other && !is_ours(filter)
}

fn describe(filter: &Filter) -> String {
    let kind = &filter.kind;
    let name = filter.bpf.as_ref().and_then(|bpf| bpf.name.as_deref());
    let name = name.map_or(String::new(), |name| format!(" {}", name.escape_debug()));
    format!("a filter of others ({kind}{name})")
}

#[cfg(test)]
mod tests {
    use proxy_netlink::route::BpfFilter;

    use super::*;

    fn filter(priority: u16, handle: u32, protocol: u16, name: Option<&str>) -> Filter {
        Filter {
            place: FilterPlace {
                device: 3,
                direction: Direction::Ingress,
                priority,
                handle,
            },
            kind: if name.is_some() { "bpf" } else { "u32" }.to_owned(),
            protocol,
            chain: 0,
            bpf: name.map(|name| BpfFilter {
                name: Some(name.to_owned()),
                program: 9,
                is_direct: true,
            }),
        }
    }

    #[test]
    fn only_what_ours_cannot_be_beside_clashes() {
        let all = 3;
        for (there, ours, clash) in [
            (filter(1, HANDLE, all, Some("culvert_eth_in")), true, false),
            (filter(1, HANDLE, all, Some("cil_from_netdev")), false, true),
            (filter(1, 1, all, Some("cil_from_netdev")), false, false),
            (filter(1, 1, 0x800, Some("cil_from_netdev")), false, true),
            (filter(1, 1, all, None), false, true),
            (filter(2, HANDLE, 0x800, None), false, false),
            (filter(2, HANDLE, all, Some("culvert_eth_in")), false, false),
        ] {
            assert_eq!(
                (is_ours(&there), clashes(&there)),
                (ours, clash),
                "{there:?}"
            );
        }
        let told = describe(&filter(1, HANDLE, all, Some("cil_from_netdev")));
        assert_eq!(told, "a filter of others (bpf cil_from_netdev)");
    }
}
