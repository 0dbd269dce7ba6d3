//! The maps of a loaded object, whatever becomes of their pins: what the agent holds open stays.

use std::{
    fs,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
};

use aya::{Ebpf, maps::Map};
use proxy_common::names::{MapGroup, MapShape};

use super::error::of_io;
use super::{
    OpenError,
    pins::{PinDir, PinPath},
};

/// One of the maps of an object.
#[derive(Debug)]
pub struct HeldMap {
    /// What it is.
    pub shape: &'static MapShape,
    /// The map.
    pub fd: OwnedFd,
}

/// Opens those maps of `ebpf` once more. To be called before any is taken out.
pub fn hold(
    ebpf: &Ebpf,
    shapes: impl IntoIterator<Item = &'static MapShape>,
) -> Result<Vec<HeldMap>, OpenError> {
    shapes
        .into_iter()
        .map(|shape| {
            let name = shape.name;
            let Some(
                Map::HashMap(data)
                | Map::LruHashMap(data)
                | Map::LpmTrie(data)
                | Map::Array(data)
                | Map::PerCpuArray(data)
                | Map::PerCpuHashMap(data)
                | Map::SkStorage(data),
            ) = ebpf.map(name)
            else {
                let reason = format!("the kernel object has no map {name}");
                return Err(OpenError::Other(reason));
            };
            let fd = data.fd().as_fd().try_clone_to_owned();
            let fd = fd.map_err(|error| of_io(&error, &format!("opening map {name}")))?;
            Ok(HeldMap { shape, fd })
        })
        .collect()
}

impl HeldMap {
    /// What differences call it.
    pub fn object(&self) -> String {
        format!("map {}", self.shape.name)
    }

    /// Where it is pinned, or should be, where Service maps are in `services`.
    pub fn pin<'d>(&self, pins: &'d PinDir, services: PinPath<'d>) -> PinPath<'d> {
        let directory = match self.shape.group {
            MapGroup::Services => services,
            MapGroup::Flows => pins.flows(),
            MapGroup::Connections => pins.connections(),
        };
        directory.join(self.shape.name)
    }

    /// Kernel memory in bytes, as the kernel accounts it; before Linux 6.4 that is an estimate
    /// from its size. `None` when the kernel does not tell.
    pub fn memory(&self) -> Option<u64> {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.fd.as_raw_fd())).ok()?;
        info.lines()
            .find_map(|line| line.strip_prefix("memlock:")?.trim().parse().ok())
    }
}
