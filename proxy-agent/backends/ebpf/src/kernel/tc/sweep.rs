//! Ends what earlier agents left on devices that are served no more: by pins, and by the names of
//! programs where pins were lost. With nothing to keep this is all of Culvert's.

use std::collections::BTreeSet;

use proxy_netlink::route::RouteSocket;

use super::{
    Attached, By, Direction, Found, Hook, TcError, clsact, on_device,
    pinned::{self, Kind, Note},
};
use crate::kernel::{links, pins::PinPath, syscalls};

/// What sweeping came to.
#[derive(Debug, Default)]
pub struct Swept {
    /// How many programs were detached.
    pub detached: usize,
    /// What could not be removed, and why.
    pub problems: Vec<TcError>,
}

impl Swept {
    fn note(&mut self, result: Result<(), TcError>) {
        match result {
            Ok(()) => self.detached += 1,
            Err(error) if error.device_is_gone() => {}
            Err(error) => self.problems.push(error),
        }
    }

    fn or_note<T>(&mut self, result: Result<T, impl Into<TcError>>) -> Option<T> {
        result
            .map_err(|error| self.problems.push(error.into()))
            .ok()
    }
}

/// Detaches all programs of Culvert's but those of `kept`, with their pins in `directory`, which goes
/// if nothing is left in it. Programs of others stay.
pub fn sweep(kept: &[&Attached], directory: &PinPath<'_>, route: &mut RouteSocket) -> Swept {
    let mut swept = Swept::default();
    sweep_links(kept, directory, &mut swept);
    sweep_devices(kept, directory, route, &mut swept);
    std::fs::remove_dir(directory).ok();
    swept
}

/// By pins, wherever the device is by now.
fn sweep_links(kept: &[&Attached], directory: &PinPath<'_>, swept: &mut Swept) {
    let pins = swept.or_note(pinned::all(directory)).unwrap_or_default();
    let kept = |device: u32, direction: Direction, pin: &PinPath<'_>| {
        kept.iter().any(|one| {
            let here = (one.hook.index, one.hook.direction) == (device, direction);
            here && pin.shown() == pinned::link(directory, device, direction).shown()
        })
    };
    for (device, kind, pin) in pins {
        if let Kind::Link(direction) = kind
            && !kept(device, direction, &pin)
        {
            swept.note(links::remove(&pin).map_err(TcError::from));
        }
    }
}

/// By what is on the devices of this network namespace.
fn sweep_devices(
    kept: &[&Attached],
    directory: &PinPath<'_>,
    route: &mut RouteSocket,
    swept: &mut Swept,
) {
    let not_told = |what| move |error| TcError::NotTold { what, error };
    let links = swept.or_note(route.links().map_err(not_told("all devices")));
    let qdiscs = swept.or_note(route.qdiscs().map_err(not_told("all qdiscs")));
    // Where it cannot be told which are to stay, none go.
    let keep = swept.or_note(
        kept.iter()
            .map(|one| one.by())
            .collect::<Result<Vec<_>, _>>(),
    );
    let (Some(links), Some(qdiscs), Some(keep)) = (links, qdiscs, keep) else {
        return;
    };
    let with_filters: BTreeSet<u32> = qdiscs.iter().map(|qdisc| qdisc.device).collect();
    for link in &links {
        let has_filters = with_filters.contains(&link.index);
        let found = match on_device(link, has_filters, route) {
            Err(error) if error.device_is_gone() => continue,
            found => swept.or_note(found).unwrap_or_default(),
        };
        for one in found.iter().filter(|one| one.is_ours()) {
            if !keep.contains(&one.by) {
                swept.note(one.remove(route));
            }
        }
        let hook = Hook {
            index: link.index,
            device: link.name.clone(),
            direction: Direction::Ingress,
        };
        swept.or_note(clsact::remove_qdisc(&hook, directory, route));
    }
    let pins = swept.or_note(pinned::all(directory)).unwrap_or_default();
    for (device, kind, _) in pins {
        let is_gone = links.iter().all(|link| link.index != device);
        let is_kept = kept.iter().any(|one| one.hook.index == device);
        let note = match kind {
            Kind::OwnQdisc if is_gone => Note::OwnQdisc,
            Kind::OfPods if !is_kept => Note::OfPods,
            Kind::Link(_) | Kind::OwnQdisc | Kind::OfPods => continue,
        };
        swept.or_note(note.forget(directory, device));
    }
}

impl Found {
    /// Takes it off the device.
    fn remove(&self, route: &mut RouteSocket) -> Result<(), TcError> {
        let failed = self.hook.refused("detaching the program from");
        match &self.by {
            By::Tcx(Some(link)) => {
                let link = syscalls::link_with_id(*link).map_err(failed)?;
                syscalls::detach(link).map_err(failed)
            }
            // No version attaches so.
            By::Tcx(None) => Ok(()),
            By::Clsact(place) => clsact::gone_is_fine(route.delete_filter(*place)).map_err(failed),
        }
    }
}
