//! AFFINITY: which endpoint a client used last, for Services with session affinity. Generic over
//! the maps, like [`crate::socket`].
//!
//! A client is a network namespace: what a pod is to kube-proxy, which knows it by its address.
//! An entry is worth something only while the endpoint it names is in the set that the client is
//! led to; so nothing has to be removed when endpoints go.

use bytemuck::{Pod, Zeroable};

use crate::{check, socket::ServiceTables};

/// Key of AFFINITY.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct AffinityKey {
    /// Cookie of the client's network namespace.
    pub client: u64,
    /// Number of the Service port.
    pub service: u32,
    /// Zero.
    pub padding: u32,
}

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
    const fn holds_for(&self, key: &AffinityKey) -> bool {
        self.check == Self::seal(key, self.endpoint)
    }

    #[inline(always)]
    const fn seal(key: &AffinityKey, endpoint: u32) -> u32 {
        let (low, high) = (key.client as u32, (key.client >> 32) as u32);
        check::check([low, high, key.service, endpoint])
    }
}

/// What is known of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// It used this endpoint a short while ago, and the endpoint is in the set still.
    Uses {
        /// Number of the endpoint.
        endpoint: u32,
        /// Index of its slot.
        index: u32,
        /// Whether that was so long ago that it must be noted when it is used again.
        idle: bool,
    },
    /// It used an endpoint that is gone, or too long ago.
    Outdated,
    /// Nothing.
    Nothing,
    /// The entry is being changed: look again.
    Torn,
}

const SECOND: u64 = 1_000_000_000;

/// How exactly it is known when a client connected last: a client that connects all the time must
/// not make CPUs fight over its entry.
const EXACTNESS: u64 = SECOND / 100;

/// The endpoint that `key`'s client used within the last `seconds`, if it is in `set` still.
#[inline(always)]
pub fn look_up<T: ServiceTables>(tables: &T, key: &AffinityKey, set: u32, seconds: u32) -> Known {
    let Some(value) = tables.affinity(key) else {
        return Known::Nothing;
    };
    if !value.holds_for(key) {
        return Known::Torn;
    }
    let idle = tables.now().saturating_sub(value.last_used);
    if idle > u64::from(seconds) * SECOND {
        return Known::Outdated;
    }
    match tables.member(set, value.endpoint) {
        Some(index) => Known::Uses {
            endpoint: value.endpoint,
            index,
            idle: idle >= EXACTNESS,
        },
        None => Known::Outdated,
    }
}
