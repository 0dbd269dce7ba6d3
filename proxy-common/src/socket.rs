//! What the socket hooks decide: where a connect or a send goes. Generic over the maps, because
//! `cgroup/sock_addr` programs have no test run: the same code is tested here against maps in
//! memory, between any two writes of the agent.

use crate::{
    affinity::{
        AffinityKey, RECORD,
        client::{LOOK_AGAIN, slot_of_client},
    },
    counters::Event,
    endpoint::{Endpoint, SlotKey, pick},
    frontend::{ENDPOINTS_EXIST, FrontendKey, FrontendValue, LEFT_ALONE},
    node,
    tables::Dialler,
};

/// IP protocol number of TCP.
pub const TCP: u8 = 6;

/// IP protocol number of UDP.
pub const UDP: u8 = 17;

/// Protocol number of an MPTCP socket (Linux 5.6). Its packets are TCP.
pub const MPTCP: u32 = 262;

/// The protocol a Service port would have for a socket of `protocol`; `None` when no Service port
/// can be meant.
#[inline(always)]
pub const fn service_protocol(protocol: u32) -> Option<u8> {
    match protocol {
        6 | MPTCP => Some(TCP),
        17 => Some(UDP),
        _ => None,
    }
}

/// Where a connect or a send to some address goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Not a Service: leave it alone.
    Untouched,
    /// To this endpoint.
    Endpoint(Endpoint),
    /// Refuse it: no endpoint could serve (the reject tier).
    Refused,
    /// Refuse it as unreachable: endpoints exist, but none this client may use (the drop tier).
    Unreachable,
}

/// How often a look-up is repeated when the Service changed under it. Each repetition needs
/// another write of the agent within nanoseconds.
const REPETITIONS: u32 = 2;

/// Decides where a client that dials `key` goes. `kept` is the endpoint that a UDP socket used
/// for this frontend before; it is kept while it is in the set.
///
/// A value found missing, or with another identity than it was looked up by, means that the agent
/// changed the Service between two look-ups: everything is looked up again.
#[inline(always)]
pub fn route<T: Dialler>(tables: &T, key: &FrontendKey, kept: Option<Endpoint>) -> Route {
    let mut attempt = 0;
    while attempt <= REPETITIONS {
        if attempt > 0 {
            tables.count(Event::LookedAgain);
        }
        attempt += 1;

        // Where the key is not of the address itself, it is of the node: see `node_port`.
        let (frontend, whole) = match tables.frontend(key) {
            Some(frontend) => (frontend, frontend.holds_for(key)),
            None => match node_port(tables, key) {
                Some(found) => found,
                None => return Route::Untouched,
            },
        };
        if !whole {
            continue;
        }
        if frontend.flags & LEFT_ALONE != 0 {
            return Route::Untouched;
        }
        let set_id = frontend.set();
        let Some(set) = tables.set(set_id) else {
            continue;
        };
        if !set.holds_for(set_id) {
            continue;
        }
        if set.count == 0 {
            if frontend.flags & ENDPOINTS_EXIST == 0 {
                tables.count(Event::Refused);
                return Route::Refused;
            }
            tables.count(Event::Unreachable);
            return Route::Unreachable;
        }
        match kept {
            Some(kept) if tables.member(set_id, kept.number).is_some() => {
                return Route::Endpoint(kept);
            }
            _ => {}
        }
        // The endpoint that it must be; 0 for any.
        let (number, index);
        if frontend.affinity == 0 {
            (number, index) = (0, pick(tables.random(), set.count));
        } else {
            let client = AffinityKey {
                client: tables.client(),
                service: frontend.service,
                claim: RECORD,
            };
            let slot = slot_of_client(tables, &client, frontend.affinity, set_id, set.count);
            if slot == LOOK_AGAIN {
                continue;
            }
            (number, index) = ((slot >> 32) as u32, slot as u32);
        }
        let Some(slot) = tables.slot(&SlotKey { set: set_id, index }) else {
            continue;
        };
        if !slot.holds_for(set_id) || (number != 0 && slot.endpoint != number) {
            continue;
        }
        return Route::Endpoint(slot.endpoint());
    }
    tables.count(Event::GaveUp);
    Route::Refused
}

/// The NodePort that is meant by `key`, and whether its value is whole; `None` if the address is
/// none of the node's, or there is no such NodePort.
#[inline(always)]
fn node_port<T: Dialler>(tables: &T, key: &FrontendKey) -> Option<(FrontendValue, bool)> {
    let (address, loopback) = node::as_dialled(&key.address);
    // A pod's loopback addresses are its own.
    if !tables.is_node_address(&address) || (loopback && !tables.is_host()) {
        return None;
    }
    let key = key.of_node_port();
    let frontend = tables.frontend(&key)?;
    Some((frontend, frontend.holds_for(&key)))
}

#[cfg(test)]
mod tests;
