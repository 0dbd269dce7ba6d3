//! To which endpoint a client with session affinity is led. Generic over the maps, like
//! [`crate::socket`].

use super::{AffinityValue, Client};
use crate::{
    endpoint::{SlotKey, pick},
    tables::ServiceTables,
};

/// Says that the maps changed meanwhile, or that another connection of the client was quicker.
pub const LOOK_AGAIN: u64 = u64::MAX;

const SECOND: u64 = 1_000_000_000;

/// How exactly it is known when a client connected last: a client that connects all the time must
/// not make CPUs fight over its entry.
const EXACTNESS: u64 = SECOND / 100;

/// How long a claim is believed. A program needs a few microseconds, and more only where another
/// one took its CPU meanwhile.
const CLAIM_HOLDS: u64 = SECOND;

/// The slot in `set`, of `count` endpoints, that the client is led to whose record for a Service port
/// has this key: that of the endpoint it used within the last `seconds`, or a new one, which it keeps
/// from now on. The number of the endpoint is in the upper half, the index of its slot in the
/// lower one; or it is [`LOOK_AGAIN`].
// A function of its own in the programs, which returns a number: few Services need it, and what
// it keeps on the stack would stand there for every socket. Linux 5.10 counts 512 bytes for all.
#[inline(never)]
pub fn slot_of_client<T: ServiceTables>(
    tables: &T,
    key: &T::Client,
    seconds: u32,
    set: u32,
    count: u32,
) -> u64 {
    let now = tables.now();
    let known = tables.affinity(key);
    if let Some(known) = known {
        if !known.holds_for(key) {
            return LOOK_AGAIN;
        }
        let idle = now.saturating_sub(known.last_used);
        if idle <= u64::from(seconds) * SECOND
            && let Some(index) = tables.member(set, known.endpoint)
        {
            if idle >= EXACTNESS {
                tables.touch(key, now);
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
    let value = AffinityValue::new(key, slot.endpoint, now);
    let chosen = found(slot.endpoint, index);
    if let Some(known) = known {
        replace(tables, set, key, &known, &value, chosen)
    } else if tables.keep(key, &value, true) || tables.affinity(key).is_none() {
        // Where there is no memory to keep it, the client is served all the same.
        chosen
    } else {
        LOOK_AGAIN
    }
}

/// Writes `value`, which leads to `chosen`, in the place of `known`, which is worth nothing any
/// more. Of several connections that do so at once, all follow one. To write and look whether it
/// stands would not do: another may have looked before, and write after.
///
/// No connection is refused for this. One that cannot follow is led to `chosen`.
#[inline(always)]
fn replace<T: ServiceTables>(
    tables: &T,
    set: u32,
    key: &T::Client,
    known: &AffinityValue,
    value: &AffinityValue,
    chosen: u64,
) -> u64 {
    let claimed = key.claim();
    let claim = AffinityValue::new(&claimed, value.endpoint, value.last_used);
    let ours = tables.keep(&claimed, &claim, true);
    let other = if ours {
        None
    } else {
        tables.affinity(&claimed)
    };
    // Only now: what was replaced before the claim was made, or read, is not replaced again.
    let stands = tables.affinity(key);
    if stands != Some(*known) {
        if ours {
            tables.release(&claimed);
        }
        return match stands {
            Some(stands) => follow(tables, set, key, &stands, chosen),
            None => chosen,
        };
    }
    match other {
        // As long as the record is the same, whoever made the claim will write just that.
        Some(other) if value.last_used.saturating_sub(other.last_used) <= CLAIM_HOLDS => {
            return follow(tables, set, &claimed, &other, chosen);
        }
        // There is no memory for a claim.
        None if !ours => return chosen,
        // Ours, or one of a program that never ended.
        _ => {}
    }
    tables.keep(key, value, false);
    tables.release(&claimed);
    chosen
}

/// The endpoint that another connection of the client chose, if it is in `set`.
#[inline(always)]
fn follow<T: ServiceTables>(
    tables: &T,
    set: u32,
    key: &T::Client,
    value: &AffinityValue,
    chosen: u64,
) -> u64 {
    if !value.holds_for(key) {
        return chosen;
    }
    match tables.member(set, value.endpoint) {
        Some(index) => found(value.endpoint, index),
        None => chosen,
    }
}

#[inline(always)]
const fn found(endpoint: u32, index: u32) -> u64 {
    ((endpoint as u64) << 32) | index as u64
}

#[cfg(test)]
mod tests;
