//! Whether maps fit into the memory limits of this process's cgroups, asked before they are made.
//! Where a limit is reached the kernel does not return ENOMEM: it may end the process, which would be
//! ended again at each start, and could say nothing. Knows the memory of maps, not their content.

mod cgroups;

use proxy_common::names::MapShape;

use self::cgroups::Room;
use super::{
    OpenError,
    release::{self, CHARGES_CGROUPS},
    sizes::Sizes,
};

/// What all else takes while programs on sockets are loaded: the object as it is read, the verifier, the
/// programs and the log ring. Measured as 24 MiB on Linux 6.18, where most is the verifier's, which older
/// kernels do not charge.
pub const REST_OF_SOCKETS: u64 = 26 << 20;
/// The same of those on devices: the verifier alone takes 55 MiB for the largest of them, and 89 in all were too
/// few.
pub const REST_OF_DEVICES: u64 = 100 << 20;

/// Whether those of `shapes` that `is_made` names can be made now, with these sizes, and the `rest`.
pub fn check(
    shapes: &[MapShape],
    sizes: &Sizes<'_>,
    rest: u64,
    is_made: impl Fn(&MapShape) -> bool,
) -> Result<(), OpenError> {
    if release::running().is_none_or(|version| version < CHARGES_CGROUPS) {
        return Ok(());
    }
    let made: Vec<_> = shapes.iter().filter(|shape| is_made(shape)).collect();
    let needed: u64 = made.iter().map(|shape| bytes(shape, sizes)).sum();
    match cgroups::tightest() {
        Some(room) if room.free < needed + rest => {
            Err(refused(&made, (needed, rest), sizes, &room))
        }
        _ => Ok(()),
    }
}

fn refused(
    made: &[&MapShape],
    (needed, rest): (u64, u64),
    sizes: &Sizes<'_>,
    room: &Room,
) -> OpenError {
    let largest = made.iter().max_by_key(|shape| bytes(shape, sizes));
    let maps = largest.map_or_else(String::new, |shape| {
        format!(
            ", and the BPF maps {}, of which {} {}",
            mebibytes(needed),
            shape.name,
            mebibytes(bytes(shape, sizes)),
        )
    });
    OpenError::Later(format!(
        "loading the BPF programs takes {}{maps}, but the memory limit of cgroup {} ({}) leaves {}; \
         raise it, or make maps smaller with --map-size",
        mebibytes(rest),
        room.cgroup.display(),
        mebibytes(room.limit),
        mebibytes(room.free),
    ))
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// The kernel's memory for an empty map.
fn bytes(shape: &MapShape, sizes: &Sizes<'_>) -> u64 {
    let aligned = |size: u32| u64::from(size).next_multiple_of(8);
    let entries = u64::from(sizes.of(shape));
    // `struct bucket` of the kernel's hashtab.c, for as many as the next power of two.
    let buckets = entries.next_power_of_two() * 16;
    // `struct htab_elem` before its key.
    let entry = 48 + aligned(shape.key_size) + aligned(shape.value_size);
    let values = if shape.is_per_cpu() {
        u64::from(sizes.cpus())
    } else {
        1
    };
    match (shape.is_hash(), shape.is_preallocated()) {
        (true, true) => buckets + entries * entry,
        (true, false) => buckets,
        // Nodes of tries are made with their entries.
        _ if shape.is_trie() => 0,
        (false, _) => entries * aligned(shape.value_size) * values,
    }
}
