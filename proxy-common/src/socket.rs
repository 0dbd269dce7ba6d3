//! What the socket hooks decide: where a connect or a send goes. Generic over the maps, because
//! `cgroup/sock_addr` programs have no test run: the same code is tested here against maps in
//! memory, between any two writes of the agent.

use crate::{
    counters::Event,
    endpoint::{Endpoint, SetValue, SlotKey, SlotValue, pick},
    frontend::{ENDPOINTS_EXIST, FrontendKey, FrontendValue},
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

/// The Service maps as a program reads them. Each method copies the value out, each word once.
pub trait ServiceTables {
    /// FRONTENDS.
    fn frontend(&self, key: &FrontendKey) -> Option<FrontendValue>;
    /// SETS.
    fn set(&self, set: u32) -> Option<SetValue>;
    /// SLOTS.
    fn slot(&self, key: &SlotKey) -> Option<SlotValue>;
    /// MEMBERS.
    fn is_member(&self, set: u32, endpoint: u32) -> bool;
    /// A uniformly distributed number.
    fn random(&self) -> u32;
    /// COUNTERS.
    fn count(&self, event: Event);
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
pub fn route<T: ServiceTables>(tables: &T, key: &FrontendKey, kept: Option<Endpoint>) -> Route {
    let mut attempt = 0;
    while attempt <= REPETITIONS {
        if attempt > 0 {
            tables.count(Event::LookedAgain);
        }
        attempt += 1;

        let Some(frontend) = tables.frontend(key) else {
            return Route::Untouched;
        };
        if !frontend.holds_for(key) {
            continue;
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
            Some(kept) if tables.is_member(set_id, kept.number) => return Route::Endpoint(kept),
            _ => {}
        }
        let index = pick(tables.random(), set.count);
        match tables.slot(&SlotKey { set: set_id, index }) {
            Some(slot) if slot.holds_for(set_id) => return Route::Endpoint(slot.endpoint()),
            _ => {}
        }
    }
    tables.count(Event::GaveUp);
    Route::Refused
}

#[cfg(test)]
mod tests;
