//! SOURCES: the addresses that endpoints see in the place of clients.

use bytemuck::{Pod, Zeroable};

use crate::{
    address::{self, Address},
    check,
    packet::{self, Version, Words},
};

/// Key of SOURCES: an address of a device that is served. The agent numbers those of a device and family
/// from 0 without a gap, in the order in which the kernel would choose among them.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct SourceKey {
    /// Number of the device.
    pub device: u32,
    /// 4 or 6.
    pub family: u16,
    /// Below [`MOST_SOURCES`].
    pub index: u16,
}

/// Value of SOURCES.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct SourceValue {
    /// The address.
    pub address: Address,
    /// The bits that it has in common with its neighbours.
    pub mask: Address,
    /// Proves that the value is whole and of its key, see the crate docs.
    pub check: u32,
}

/// The first port that may be seen in the place of a client's. Those below take privileges to be bound, and some
/// servers take who comes from one for privileged.
pub const LEAST_SOURCE_PORT: u16 = 1024;

/// Addresses of one device and family that are chosen from, at most.
pub const MOST_SOURCES: u16 = 4;

impl SourceKey {
    /// The key of the device's address of that number, in this family.
    #[inline(always)]
    pub const fn new(device: u32, version: Version, index: u16) -> Self {
        let family = match version {
            Version::V4 => 4,
            Version::V6 => 6,
        };
        Self {
            device,
            family,
            index,
        }
    }
}

impl SourceValue {
    /// The value of `key`.
    #[inline(always)]
    pub fn new(key: &SourceKey, address: Address, mask: Address) -> Self {
        let mut value = Self {
            address,
            mask,
            check: 0,
        };
        value.check = value.seal(*key);
        value
    }

    /// Whether the value is whole, and `key`'s.
    #[inline(always)]
    pub fn holds_for(&self, key: &SourceKey) -> bool {
        self.check == self.seal(*key)
    }

    /// How many of the leading bits that the address has in common with its neighbours it has in common with
    /// `other`, too.
    #[inline(always)]
    pub fn common_bits(&self, other: &Words) -> u32 {
        let [high, low] = self.differing(other);
        if high == 0 {
            64 + u64::from_be(low).leading_zeros()
        } else {
            u64::from_be(high).leading_zeros()
        }
    }

    /// Whether `other` is a neighbour.
    #[inline(always)]
    pub fn is_near(&self, other: &Words) -> bool {
        let own = packet::pairs(&address::to_words(&self.address));
        let other = packet::pairs(other);
        let mask = packet::pairs(&address::to_words(&self.mask));
        ((own[0] ^ other[0]) & mask[0]) | ((own[1] ^ other[1]) & mask[1]) == 0
    }

    /// The bits in which it differs from `other`, and those that neighbours do not have in common.
    #[inline(always)]
    fn differing(&self, other: &Words) -> [u64; 2] {
        let own = packet::pairs(&address::to_words(&self.address));
        let other = packet::pairs(other);
        let mask = packet::pairs(&address::to_words(&self.mask));
        [
            (own[0] ^ other[0]) | !mask[0],
            (own[1] ^ other[1]) | !mask[1],
        ]
    }

    #[inline(always)]
    fn seal(&self, key: SourceKey) -> u32 {
        let key: &[u32; 2] = bytemuck::cast_ref(&key);
        let value: &[u32; 9] = bytemuck::cast_ref(self);
        let sum = check::add::<2, 2>(0, 0, key);
        check::finish(check::add::<9, 8>(sum, 2, value))
    }
}
