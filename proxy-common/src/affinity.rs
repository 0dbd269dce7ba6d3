//! AFFINITY: which endpoint a client used last, for Services with session affinity. What follows from
//! it for a connection, `client` decides.
//!
//! A client is a network namespace: what a pod is to kube-proxy, which knows it by its address.
//! An entry is worth something only while the endpoint it names is in the set that the client is
//! led to; so nothing has to be removed when endpoints go.

pub mod client;

use bytemuck::{Pod, Zeroable};

use crate::check;

/// Key of AFFINITY.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct AffinityKey {
    /// Cookie of the client's network namespace.
    pub client: u64,
    /// Number of the Service port.
    pub service: u32,
    /// [`RECORD`] or [`CLAIM`].
    pub claim: u32,
}

/// [`AffinityKey::claim`]: which endpoint the client used last.
pub const RECORD: u32 = 0;

/// [`AffinityKey::claim`]: which endpoint a program is about to write into the client's record. It
/// is there for as long as that takes. Linux 5.10 has no compare-and-swap for programs; but of
/// several that add one key, one succeeds.
pub const CLAIM: u32 = 1;

/// Value of AFFINITY.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct AffinityValue {
    /// When the client connected last, in nanoseconds since boot. Not part of the check: it is
    /// written anew while others read.
    pub last_used: u64,
    /// Number of the endpoint.
    pub endpoint: u32,
    /// Proves that the value is whole and of its key, see the crate docs.
    pub check: u32,
}

impl AffinityValue {
    /// The value of `key` from `now` on.
    #[inline(always)]
    pub const fn new(key: &AffinityKey, endpoint: u32, now: u64) -> Self {
        Self {
            last_used: now,
            endpoint,
            check: Self::seal(key, endpoint),
        }
    }

    #[inline(always)]
    pub(crate) const fn holds_for(&self, key: &AffinityKey) -> bool {
        self.check == Self::seal(key, self.endpoint)
    }

    #[inline(always)]
    const fn seal(key: &AffinityKey, endpoint: u32) -> u32 {
        let (low, high) = (key.client as u32, (key.client >> 32) as u32);
        check::check([low, high, key.service, endpoint])
    }
}
