//! FRAGMENTS: where the fragments of a datagram go, of which only the first one has ports.

use bytemuck::{Pod, Zeroable};

use crate::{
    address::{self, Address},
    check,
    packet::Words,
};

/// The map of fragments.
pub trait Fragments {
    /// Remembers where the fragments of a datagram go.
    fn remember(&self, key: &FragmentKey, value: &FragmentValue);

    /// Where they go.
    fn recall(&self, key: &FragmentKey) -> Option<FragmentValue>;
}

/// The key of FRAGMENTS.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct FragmentKey {
    /// Sender.
    pub source: Address,
    /// Receiver.
    pub destination: Address,
    /// Tells one datagram from another.
    pub identification: u32,
    /// IP protocol number.
    pub protocol: u8,
    /// `DIALLED` or `INSIDE`.
    pub role: u8,
    /// Zero.
    pub padding: u16,
}

/// The value of FRAGMENTS: where the other fragments go.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct FragmentValue {
    /// What is put in the place of the address; zero if a later fragment came before the first one.
    pub address: Address,
    /// When the first fragment came, or a later one before it, in seconds since boot.
    pub since: u32,
    /// Proves that the value is whole and of its key, see the crate docs.
    pub check: u32,
}

impl FragmentKey {
    /// The key of the fragments of one datagram.
    #[inline(always)]
    pub fn new(
        source: &Words,
        destination: &Words,
        identification: u32,
        protocol: u8,
        role: u8,
    ) -> Self {
        Self {
            source: address::from_words(*source),
            destination: address::from_words(*destination),
            identification,
            protocol,
            role,
            padding: 0,
        }
    }
}

impl FragmentValue {
    /// The value of `key`.
    #[inline(always)]
    pub fn new(key: &FragmentKey, address: &Words, since: u32) -> Self {
        Self {
            address: address::from_words(*address),
            since,
            check: Self::seal(key, address),
        }
    }

    /// That of a datagram of which a later fragment came first.
    #[inline(always)]
    pub fn without_first(key: &FragmentKey, since: u32) -> Self {
        Self::new(key, &[0; 4], since)
    }

    /// Whether a later fragment came first.
    #[inline(always)]
    pub fn is_without_first(&self) -> bool {
        address::to_words(&self.address) == [0; 4]
    }

    /// Whether the value is whole, and `key`'s.
    #[inline(always)]
    pub fn holds_for(&self, key: &FragmentKey) -> bool {
        self.check == Self::seal(key, &address::to_words(&self.address))
    }

    #[inline(always)]
    fn seal(key: &FragmentKey, address: &Words) -> u32 {
        let key: &[u32; 10] = bytemuck::cast_ref(key);
        let sum = check::add::<10, 10>(0, 0, key);
        check::finish(check::add::<4, 4>(sum, 10, address))
    }
}
