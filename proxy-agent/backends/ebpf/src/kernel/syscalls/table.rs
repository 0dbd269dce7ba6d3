//! Maps whose entries are read many at once: the kernel writes as many bytes as the map's keys and
//! values have, so those are compared with the types before anything is read.

use std::{
    io,
    marker::PhantomData,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
};

use bytemuck::Pod;

use super::{BPF_MAP_LOOKUP_BATCH, attr, bpf, map_shape};

/// Where a batch ended, for the next one to begin there. Larger than any kernel's.
pub type Position = [u64; 8];

/// One batch of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// How many were read.
    pub count: usize,
    /// Whether these were the last.
    pub last: bool,
}

/// A hash map with keys of the size of `K`, and values of that of `V`.
#[derive(Debug)]
pub struct Table<K, V> {
    fd: OwnedFd,
    entries: PhantomData<fn() -> (K, V)>,
}

impl<K: Pod, V: Pod> Table<K, V> {
    /// An error where keys or values of the map that is open here have another size.
    pub fn of(fd: OwnedFd) -> io::Result<Self> {
        let shape = map_shape(&fd)?;
        let sizes = [shape.key_size, shape.value_size];
        let wanted = [size_of::<K>(), size_of::<V>()];
        // The kernel may note a key where a batch ended.
        if sizes.map(|size| size as usize) != wanted || wanted[0] > size_of::<Position>() {
            return Err(io::Error::other(format!(
                "keys and values of the map have {sizes:?} bytes, not {wanted:?}"
            )));
        }
        Ok(Self {
            fd,
            entries: PhantomData,
        })
    }

    /// Reads entries (Linux 5.6) from where `position` says, from the first one without it.
    /// ENOSPC: `keys` is too short for what has to be read at once; nothing was read.
    pub fn batch(
        &self,
        position: &mut Option<Position>,
        keys: &mut [K],
        values: &mut [V],
    ) -> io::Result<Batch> {
        let mut next: Position = [0; 8];
        let from = position.as_ref().map_or(0, |from| from.as_ptr() as u64);
        let room = u32::try_from(keys.len().min(values.len())).unwrap_or(u32::MAX);
        // in_batch, out_batch, keys, values (u64 each), count, map_fd.
        let mut attr = attr(&[
            (0, &from.to_ne_bytes()),
            (8, &(next.as_mut_ptr() as u64).to_ne_bytes()),
            (16, &(keys.as_mut_ptr() as u64).to_ne_bytes()),
            (24, &(values.as_mut_ptr() as u64).to_ne_bytes()),
            (32, &room.to_ne_bytes()),
            (36, &self.fd.as_fd().as_raw_fd().to_ne_bytes()),
        ]);
        // SAFETY: `from` is null or points to a position, `next` to another; there is room for
        // `room` keys and values, whose sizes `of` has compared with the map's, and any bytes are
        // a `K` and a `V`.
        let last = match unsafe { bpf(BPF_MAP_LOOKUP_BATCH, &mut attr) } {
            Ok(_) => false,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
            Err(error) => return Err(error),
        };
        let [a, b, c, d] = [attr[32], attr[33], attr[34], attr[35]];
        let count = u32::from_ne_bytes([a, b, c, d]) as usize;
        *position = Some(next);
        Ok(Batch { count, last })
    }
}
