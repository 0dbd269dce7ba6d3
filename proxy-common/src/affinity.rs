//! AFFINITY: which endpoint a client used last, for Services with session affinity. What follows from
//! it for a connection, `client` decides.
//!
//! To a socket's hook a client is a network namespace: what a pod is to kube-proxy, which knows it by
//! its address. To a program on a device it is an address.
//! An entry is worth something only while the endpoint it names is in the set that the client is
//! led to; so nothing has to be removed when endpoints go.

pub mod client;

use bytemuck::{Pod, Zeroable};

use crate::{
    address::{self, Address},
    check,
};

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

/// Key of CLIENTS.
#[repr(C, align(4))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct ClientKey {
    /// The client's address.
    pub address: Address,
    /// Number of the Service port.
    pub service: u32,
    /// [`RECORD`] or [`CLAIM`].
    pub claim: u32,
}

/// By what a client's endpoint is remembered.
pub trait Client: Copy {
    /// The key of a claim to the client's record.
    fn claim(self) -> Self;

    /// What proves that an entry for this endpoint is the key's.
    fn seal(&self, endpoint: u32) -> u32;
}

impl Client for AffinityKey {
    #[inline(always)]
    fn claim(self) -> Self {
        Self {
            claim: CLAIM,
            ..self
        }
    }

    #[inline(always)]
    fn seal(&self, endpoint: u32) -> u32 {
        let (low, high) = (self.client as u32, (self.client >> 32) as u32);
        check::check([low, high, self.service, endpoint])
    }
}

impl Client for ClientKey {
    #[inline(always)]
    fn claim(self) -> Self {
        Self {
            claim: CLAIM,
            ..self
        }
    }

    #[inline(always)]
    fn seal(&self, endpoint: u32) -> u32 {
        let [a, b, c, d] = address::to_words(&self.address);
        check::check([a, b, c, d, self.service, endpoint])
    }
}

/// Value of AFFINITY and CLIENTS.
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
    pub fn new<C: Client>(key: &C, endpoint: u32, now: u64) -> Self {
        Self {
            last_used: now,
            endpoint,
            check: key.seal(endpoint),
        }
    }

    #[inline(always)]
    pub(crate) fn holds_for<C: Client>(&self, key: &C) -> bool {
        self.check == key.seal(self.endpoint)
    }
}
