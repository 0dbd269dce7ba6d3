//! Sets of endpoints: SETS, SLOTS, MEMBERS.

use bytemuck::{Pod, Zeroable};

use crate::{address::Address, check};

/// Where traffic may land, as programs pass it around. `repr(C)`, so that the address is aligned
/// and copied by words.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// Its number, never 0. Numbers are given out once and not reused soon.
    pub number: u32,
    /// Address that traffic is sent to.
    pub address: Address,
    /// Target port, host order.
    pub port: u16,
    /// [`ON_NODE`], or 0. Without it these bytes are whatever a register holds when an endpoint is
    /// copied, and the verifier lets no half of a pointer be stored.
    pub flags: u16,
}

/// The endpoint is known to run on this node.
pub const ON_NODE: u16 = 1 << 0;

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
    /// How many slots are valid: indices 0 to `count - 1`.
    pub count: u32,
    /// Proves that the value is whole and of its key, see the crate docs.
    pub check: u32,
}

impl SetValue {
    /// The value of the set with number `set`.
    #[inline(always)]
    pub const fn new(set: u32, count: u32) -> Self {
        Self {
            count,
            check: check::check([set, count]),
        }
    }

    /// Whether the value is whole, and of the set with number `set`.
    #[inline(always)]
    pub const fn holds_for(&self, set: u32) -> bool {
        self.check == check::check([set, self.count])
    }
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
    /// Number of the endpoint at this position.
    pub endpoint: u32,
    /// Address that traffic is sent to.
    pub address: Address,
    /// Target port, host order.
    pub port: u16,
    /// [`ON_NODE`], or 0.
    pub flags: u16,
    /// Proves that the value is whole and of its set, see the crate docs.
    pub check: u32,
}

impl SlotValue {
    /// The value of a slot of the set with number `set`.
    #[inline(always)]
    pub fn new(set: u32, endpoint: &Endpoint) -> Self {
        let Endpoint {
            number,
            address,
            port,
            flags,
        } = *endpoint;
        let mut value = Self {
            endpoint: number,
            address,
            port,
            flags,
            check: 0,
        };
        value.check = value.seal(set);
        value
    }

    /// Whether the value is whole, and of a slot of the set with number `set`.
    #[inline(always)]
    pub fn holds_for(&self, set: u32) -> bool {
        self.check == self.seal(set)
    }

    /// The slot's endpoint.
    #[inline(always)]
    pub const fn endpoint(&self) -> Endpoint {
        Endpoint {
            number: self.endpoint,
            port: self.port,
            flags: self.flags,
            address: self.address,
        }
    }

    #[inline(always)]
    fn seal(&self, set: u32) -> u32 {
        let [number, a, b, c, d, port_and_flags, _]: [u32; 7] = bytemuck::cast(*self);
        check::check([set, number, a, b, c, d, port_and_flags])
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
    fn a_slot_holds_for_its_set_only_and_only_whole() {
        let endpoint = Endpoint {
            number: 3,
            address: [7; 16],
            port: 80,
            flags: ON_NODE,
        };
        let value = SlotValue::new(2, &endpoint);
        assert!(value.holds_for(2));
        assert!(!value.holds_for(1));
        assert_eq!(value.endpoint(), endpoint);
        let mut moved = [7; 16];
        moved[3] = 8;
        for other in [
            SlotValue {
                endpoint: 4,
                ..value
            },
            SlotValue {
                address: moved,
                ..value
            },
            SlotValue { port: 81, ..value },
            SlotValue { flags: 0, ..value },
        ] {
            assert!(!other.holds_for(2), "{other:?}");
        }
    }

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
