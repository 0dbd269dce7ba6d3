//! Reads all entries of a hash map some thousand at a time: entry by entry it takes two system
//! calls for each, half a second for a large cluster.

use std::io;

use bytemuck::Pod;

use super::super::syscalls::{Batch, Position, Table};

/// Entries asked for at once; what fits is a matter of the buckets they are in.
const FIRST: usize = 4096;

/// No bucket holds as many, unless the kernel's hash fails.
const LARGEST: usize = 1 << 20;

/// Every entry of `map`.
pub fn entries<K: Pod, V: Pod>(map: &Table<K, V>) -> io::Result<Vec<(K, V)>> {
    collect(FIRST, |position, keys, values| {
        map.batch(position, keys, values)
    })
}

fn collect<K: Pod, V: Pod>(
    mut room: usize,
    mut read: impl FnMut(&mut Option<Position>, &mut [K], &mut [V]) -> io::Result<Batch>,
) -> io::Result<Vec<(K, V)>> {
    let mut entries = Vec::new();
    let mut position = None;
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    loop {
        keys.resize(room, K::zeroed());
        values.resize(room, V::zeroed());
        match read(&mut position, &mut keys, &mut values) {
            Ok(Batch { count, last }) => {
                entries.extend(keys.iter().copied().zip(values.iter().copied()).take(count));
                if last {
                    return Ok(entries);
                }
            }
            // One bucket holds more; its entries come together or not at all.
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && room < LARGEST => room *= 2,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives the entries of buckets as the kernel does: whole buckets, as many as fit.
    fn read(
        buckets: &[&[u32]],
        position: &mut Option<Position>,
        keys: &mut [u32],
        values: &mut [u32],
    ) -> io::Result<Batch> {
        let first = position.map_or(0, |position| usize::try_from(position[0]).unwrap());
        let mut count = 0;
        for (index, bucket) in buckets.iter().enumerate().skip(first) {
            if count + bucket.len() > keys.len() {
                if count == 0 {
                    return Err(io::Error::from_raw_os_error(libc::ENOSPC));
                }
                *position = Some([index as u64; 8]);
                return Ok(Batch { count, last: false });
            }
            for key in *bucket {
                (keys[count], values[count]) = (*key, key * 10);
                count += 1;
            }
        }
        Ok(Batch { count, last: true })
    }

    #[test]
    fn all_entries_are_read_however_they_lie() {
        let cases: [&[&[u32]]; 5] = [
            &[],
            &[&[1], &[2], &[3]],
            &[&[1, 2, 3, 4, 5]],
            &[&[1], &[], &[2, 3, 4, 5, 6, 7, 8, 9], &[10]],
            &[&[1, 2], &[3, 4], &[5, 6]],
        ];
        for buckets in cases {
            let found = collect(2, |position, keys, values| {
                read(buckets, position, keys, values)
            });
            let expected: Vec<_> = buckets
                .concat()
                .iter()
                .map(|key| (*key, key * 10))
                .collect();
            assert_eq!(found.unwrap(), expected);
        }
    }

    #[test]
    fn another_error_ends_it() {
        let refused =
            collect::<u32, u32>(2, |_, _, _| Err(io::Error::from_raw_os_error(libc::EPERM)));
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EPERM));
        let endless = collect::<u32, u32>(LARGEST / 2, |_, _, _| {
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        });
        assert_eq!(endless.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    }
}
