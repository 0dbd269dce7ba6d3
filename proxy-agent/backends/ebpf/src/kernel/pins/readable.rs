//! A pinned map that is only read: of an earlier run, whose maps may have other shapes.

use std::os::fd::OwnedFd;

use proxy_common::names::MapShape;

use super::{super::syscalls, PinPath};

/// Opens a pinned map if keys and values have the size that `shape` says, and it is of that type.
pub fn open_readable(pin: &PinPath<'_>, shape: &MapShape) -> Option<OwnedFd> {
    let map = syscalls::open_pinned(pin.as_ref()).ok()?;
    let found = syscalls::map_shape(&map).ok()?;
    let same = [found.kind, found.key_size, found.value_size]
        == [shape.kind, shape.key_size, shape.value_size];
    same.then_some(map)
}
