//! AFFINITY: which endpoint a client used last, for Services with session affinity. Generic over
//! the maps, like [`crate::socket`].
//!
//! A client is a network namespace: what a pod is to kube-proxy, which knows it by its address.
//! An entry is worth something only while the endpoint it names is in the set that the client is
//! led to; so nothing has to be removed when endpoints go.

use bytemuck::{Pod, Zeroable};

use crate::{
    check,
    endpoint::{SlotKey, pick},
    socket::ServiceTables,
};

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

/// Says that the maps changed meanwhile, or that another connection of the client was quicker.
pub const LOOK_AGAIN: u64 = u64::MAX;

const SECOND: u64 = 1_000_000_000;

/// How exactly it is known when a client connected last: a client that connects all the time must
/// not make CPUs fight over its entry.
const EXACTNESS: u64 = SECOND / 100;

/// The slot in `set`, of `count` endpoints, that the client is led to which dials Service port
/// `service`: that of the endpoint it used within the last `seconds`, or a new one, which it keeps
/// from now on. The number of the endpoint is in the upper half, the index of its slot in the
/// lower one; or it is [`LOOK_AGAIN`].
// A function of its own in the programs, which returns a number: few Services need it, and what
// it keeps on the stack would stand there for every socket. Linux 5.10 counts 512 bytes for all.
#[inline(never)]
pub fn slot_of_client<T: ServiceTables>(
    tables: &T,
    service: u32,
    seconds: u32,
    set: u32,
    count: u32,
) -> u64 {
    let key = AffinityKey {
        client: tables.client(),
        service,
        padding: 0,
    };
    let now = tables.now();
    let known = tables.affinity(&key);
    let fresh = known.is_none();
    if let Some(known) = known {
        if !known.holds_for(&key) {
            return LOOK_AGAIN;
        }
        let idle = now.saturating_sub(known.last_used);
        if idle <= u64::from(seconds) * SECOND
            && let Some(index) = tables.member(set, known.endpoint)
        {
            if idle >= EXACTNESS {
                tables.touch(&key, now);
            }
            return found(known.endpoint, index);
        }
    }
    let index = pick(tables.random(), count);
    let Some(slot) = tables.slot(&SlotKey { set, index }) else {
        return LOOK_AGAIN;
    };
    if !slot.holds_for(set) {
        return LOOK_AGAIN;
    }
    let value = AffinityValue::new(&key, slot.endpoint, now);
    // Where there is no memory to keep it, the client is served all the same.
    if tables.keep(&key, &value, fresh) || tables.affinity(&key).is_none() {
        found(slot.endpoint, index)
    } else {
        LOOK_AGAIN
    }
}

#[inline(always)]
const fn found(endpoint: u32, index: u32) -> u64 {
    ((endpoint as u64) << 32) | index as u64
}
