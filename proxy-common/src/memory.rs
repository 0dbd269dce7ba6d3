//! What a socket remembers, over the two places it can be: see [`crate::flow`].

use crate::{
    address::Address,
    endpoint::Endpoint,
    flow::{
        Dialled, Flows, GIVES_WAY_AFTER, LAST_IN_FLOWS, MAY_GIVE_WAY, Peer, Remembered, Translation,
    },
    shared::Shared,
};

/// The two places of one socket.
pub trait Places {
    /// The socket's cookie, never 0.
    fn cookie(&self) -> u64;

    /// The socket's place in PEERS, which another socket may hold.
    fn peer(&mut self) -> Option<Shared<'_, Peer>>;

    /// The socket's FLOWS; made if `create` and there is memory.
    fn flows(&mut self, create: bool) -> Option<Shared<'_, Flows>>;
}

/// How a socket came to a new peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A TCP socket connects. Its place may be taken from it later.
    TcpConnect,
    /// A UDP socket connects.
    UdpConnect,
    /// An unconnected UDP socket sends.
    UdpSend,
}

/// Remembers where the socket now leads to. A connected socket has one peer: its own place is
/// taken over whatever it held.
// A function of its own in the programs: see `Flows`.
#[inline(never)]
pub fn remember<P: Places>(places: &mut P, translation: &Translation, by: By) -> Remembered {
    let cookie = places.cookie();
    let translation = translation.sealed(cookie);
    if let Some(peer) = places.peer() {
        let held = peer.translation();
        let holder = peer.cookie().load();
        let usable = if holder == cookie {
            by != By::UdpSend
                || held.is_free()
                || held.is_of(&translation.frontend, translation.frontend_port)
        } else {
            holder == 0 || gives_way(holder, peer.state().load(), cookie)
        };
        if usable {
            peer.cookie().store(cookie);
            held.write(&translation);
            peer.state().store(if by == By::TcpConnect {
                MAY_GIVE_WAY
            } else {
                0
            });
            return Remembered::Kept;
        }
    }
    let Some(flows) = places.flows(true) else {
        return Remembered::Lost;
    };
    let remembered = flows.remember(&translation);
    note_last_in_flows(places, cookie);
    remembered
}

/// The endpoint that the socket used for `frontend` before.
#[inline(never)]
pub fn endpoint_of<P: Places>(places: &mut P, frontend: &Address, port: u16) -> Option<Endpoint> {
    let cookie = places.cookie();
    if let Some(peer) = places.peer()
        && peer.cookie().load() == cookie
    {
        let held = peer.translation().snapshot();
        if held.is_of(frontend, port) && held.holds_for(cookie) {
            return Some(held.endpoint());
        }
    }
    places.flows(false)?.endpoint_of(frontend, port, cookie)
}

/// Notes that the socket sends to the endpoint that [`endpoint_of`] returned.
#[inline(always)]
pub fn used<P: Places>(places: &mut P, frontend: &Address, port: u16) {
    let cookie = places.cookie();
    if let Some(peer) = places.peer()
        && peer.cookie().load() == cookie
        && peer.translation().is_of(frontend, port)
    {
        let state = peer.state().load();
        if state & LAST_IN_FLOWS != 0 {
            peer.state().store(state & !LAST_IN_FLOWS);
        }
        return;
    }
    if let Some(flows) = places.flows(false) {
        flows.touch(frontend, port);
        note_last_in_flows(places, cookie);
    }
}

/// The frontend behind `endpoint`; the one used last if there are several.
#[inline(always)]
pub fn frontend_of<P: Places>(places: &mut P, endpoint: &Address, port: u16) -> Option<Dialled> {
    let cookie = places.cookie();
    let mut held = None;
    let mut last_in_flows = true;
    if let Some(peer) = places.peer()
        && peer.cookie().load() == cookie
    {
        last_in_flows = peer.state().load() & LAST_IN_FLOWS != 0;
        let translation = peer.translation().snapshot();
        if translation.leads_to(endpoint, port) && translation.holds_for(cookie) {
            held = Some(translation.dialled());
        }
    }
    if held.is_some() && !last_in_flows {
        return held;
    }
    let flows = places.flows(false);
    flows
        .and_then(|flows| flows.frontend_of(endpoint, port, cookie))
        .or(held)
}

/// Forgets every frontend behind `endpoint`: the socket now talks to that address itself.
#[inline(always)]
pub fn forget<P: Places>(places: &mut P, endpoint: &Address, port: u16) {
    let cookie = places.cookie();
    if let Some(peer) = places.peer()
        && peer.cookie().load() == cookie
        && peer.translation().leads_to(endpoint, port)
    {
        peer.translation().void();
    }
    if let Some(flows) = places.flows(false) {
        flows.forget(endpoint, port);
    }
}

/// Frees the socket's place in PEERS: it is being closed.
#[inline(always)]
pub fn closed(place: Shared<'_, Peer>, cookie: u64) {
    if place.cookie().load() == cookie {
        place.cookie().store(0);
    }
}

/// Whether the socket with `cookie` may take the place from its holder.
#[inline(always)]
const fn gives_way(holder: u64, state: u32, cookie: u64) -> bool {
    state & MAY_GIVE_WAY != 0 && cookie > holder.wrapping_add(GIVES_WAY_AFTER)
}

#[inline(always)]
fn note_last_in_flows<P: Places>(places: &mut P, cookie: u64) {
    if let Some(peer) = places.peer()
        && peer.cookie().load() == cookie
    {
        peer.state().store(peer.state().load() | LAST_IN_FLOWS);
    }
}

#[cfg(test)]
mod tests;
