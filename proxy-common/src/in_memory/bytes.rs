//! A packet in memory: changed as the kernel changes one, with sums computed over what is replaced.

use std::vec::Vec;

use bytemuck::Pod;

use crate::packet::{Covers, Packet, Sum, Words};

/// A packet in memory, from its IP header on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Packet for Bytes {
    fn read<T: Pod>(&self, at: u32) -> Option<T> {
        let bytes = self.0.get(at as usize..)?.get(..size_of::<T>())?;
        Some(bytemuck::pod_read_unaligned(bytes))
    }

    fn write<T: Pod>(&mut self, at: u32, value: &T) -> bool {
        let bytes = bytemuck::bytes_of(value);
        let room = self.0.get_mut(at as usize..);
        match room.and_then(|room| room.get_mut(..bytes.len())) {
            Some(room) => {
                room.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }

    fn fix_sum(&mut self, at: u32, from: &Words, to: &Words, _: Covers, sum: Sum) -> bool {
        self.fix(at, bytemuck::bytes_of(from), bytemuck::bytes_of(to), sum)
    }

    fn fix_sum_half(&mut self, at: u32, from: u16, to: u16, sum: Sum) -> bool {
        self.fix(at, &from.to_be_bytes(), &to.to_be_bytes(), sum)
    }
}

impl Bytes {
    fn fix(&mut self, at: u32, from: &[u8], to: &[u8], sum: Sum) -> bool {
        let Some(before) = self.read::<[u8; 2]>(at) else {
            return false;
        };
        let before = u16::from_be_bytes(before);
        if sum == Sum::ZeroIsNone && before == 0 {
            return true;
        }
        let complement: Vec<_> = from.iter().map(|byte| !byte).collect();
        let total = u32::from(!before) + u32::from(folded(&complement)) + u32::from(folded(to));
        let mut after = !fold(total);
        if sum == Sum::ZeroIsNone && after == 0 {
            after = 0xffff;
        }
        self.write(at, &after.to_be_bytes())
    }
}

/// The one's complement sum of half words in network order.
pub fn folded(bytes: &[u8]) -> u16 {
    let halves = bytes.chunks(2);
    let halves =
        halves.map(|half| u16::from_be_bytes([half[0], half.get(1).copied().unwrap_or(0)]));
    fold(halves.map(u32::from).sum())
}

fn fold(total: u32) -> u16 {
    let total = (total & 0xffff) + (total >> 16);
    ((total & 0xffff) + (total >> 16)) as u16
}
