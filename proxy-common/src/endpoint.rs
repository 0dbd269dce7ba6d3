//! Sets of endpoints: SETS, SLOTS, MEMBERS.

use bytemuck::{Pod, Zeroable};

use crate::address::Address;

/// Where traffic may land, as programs pass it around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// Its number, never 0. Numbers are given out once and not reused soon.
    pub number: u32,
    /// Target port, host order.
    pub port: u16,
    /// Address that traffic is sent to.
    pub address: Address,
}

/// Key of SETS.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct SetKey {
    /// Number of the set, never 0.
    pub set: u32,
}

/// Value of SETS.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct SetValue {
    /// Its own number. First, see the crate docs.
    pub set: u32,
    /// How many slots are valid: indices 0 to `count - 1`.
    pub count: u32,
}

/// Key of SLOTS.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct SlotKey {
    /// The set.
    pub set: u32,
    /// Position in the set, from 0.
    pub index: u32,
}

/// Value of SLOTS.
#[repr(C, align(4))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct SlotValue {
    /// The set it belongs to. First, see the crate docs.
    pub set: u32,
    /// Number of the endpoint at this position.
    pub endpoint: u32,
    /// Address that traffic is sent to.
    pub address: Address,
    /// Target port, host order.
    pub port: u16,
    /// Zero.
    pub padding: u16,
}

impl SlotValue {
    /// The slot's endpoint.
    #[inline(always)]
    pub const fn endpoint(&self) -> Endpoint {
        Endpoint {
            number: self.endpoint,
            port: self.port,
            address: self.address,
        }
    }
}

/// Key of MEMBERS.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct MemberKey {
    /// The set.
    pub set: u32,
    /// An endpoint in it.
    pub endpoint: u32,
}

/// Value of MEMBERS.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct MemberValue {
    /// Index of the endpoint's slot.
    pub index: u32,
}

/// Maps a random number onto `0..count` without the bias and cost of a division.
/// `count` must not be 0.
#[inline(always)]
pub const fn pick(random: u32, count: u32) -> u32 {
    ((random as u64 * count as u64) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pick_reaches_every_index_and_no_other() {
        for count in [1, 2, 3, 7, 1000, u32::MAX] {
            assert_eq!(pick(0, count), 0);
            assert_eq!(pick(u32::MAX, count), count - 1, "count {count}");
        }
        let mut seen = [0u32; 3];
        for step in 0..3000u32 {
            seen[pick(step.wrapping_mul(0x9e37_79b1), 3) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (900..1100).contains(n)), "{seen:?}");
    }
}
