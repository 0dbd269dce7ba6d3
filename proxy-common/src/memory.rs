//! What a socket remembers, over the two places it can be: see [`crate::flow`].

use crate::{
    address::Address,
    endpoint::Endpoint,
    flow::{Dialled, Flows, LAST_IN_FLOWS, MAY_GIVE_WAY, Peer, Remembered, Translation},
};

/// The two places of one socket.
pub trait Places {
    /// The socket's cookie, never 0.
    fn cookie(&self) -> u64;

    /// The socket's place in PEERS, which another socket may hold.
    fn peer(&mut self) -> Option<&mut Peer>;

    /// The socket's FLOWS; made if `create` and there is memory.
    fn flows(&mut self, create: bool) -> Option<&mut Flows>;
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
        let held = &peer.translation;
        let usable = if peer.cookie == cookie {
            by != By::UdpSend
                || held.endpoint_id == 0
                || held.is_of(&translation.frontend, translation.frontend_port)
        } else {
            peer.cookie == 0 || peer.gives_way_to(cookie)
        };
        if usable {
            peer.cookie = cookie;
            peer.translation = translation;
            peer.state = if by == By::TcpConnect {
                MAY_GIVE_WAY
            } else {
                0
            };
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
        && peer.cookie == cookie
    {
        let held = peer.translation.snapshot();
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
        && peer.cookie == cookie
        && peer.translation.is_of(frontend, port)
    {
        if peer.state & LAST_IN_FLOWS != 0 {
            peer.state &= !LAST_IN_FLOWS;
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
        && peer.cookie == cookie
    {
        last_in_flows = peer.state & LAST_IN_FLOWS != 0;
        let translation = peer.translation.snapshot();
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
        && peer.cookie == cookie
        && peer.translation.leads_to(endpoint, port)
    {
        peer.translation.void();
    }
    if let Some(flows) = places.flows(false) {
        flows.forget(endpoint, port);
    }
}

/// Frees the socket's place in PEERS: it is being closed.
#[inline(always)]
pub fn closed(place: &mut Peer, cookie: u64) {
    if place.cookie == cookie {
        place.cookie = 0;
    }
}

#[inline(always)]
fn note_last_in_flows<P: Places>(places: &mut P, cookie: u64) {
    if let Some(peer) = places.peer()
        && peer.cookie == cookie
    {
        peer.state |= LAST_IN_FLOWS;
    }
}

#[cfg(test)]
mod tests;
