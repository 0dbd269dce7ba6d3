//! What a socket remembers, over the two places it can be: see [`crate::flow`].

use crate::{
    address::Address,
    flow::{Flows, Peer, Remembered, Translation},
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

/// Remembers where the socket now connects to. A connected socket has one peer: its own place is
/// taken over whatever it held.
#[inline(always)]
pub fn connected<P: Places>(places: &mut P, translation: Translation) -> Remembered {
    remember(places, translation, |_| true)
}

/// Remembers where an unconnected socket now sends to.
#[inline(always)]
pub fn sent<P: Places>(places: &mut P, translation: Translation) -> Remembered {
    remember(places, translation, |held| {
        held.endpoint_id == 0 || held.is_of(&translation.frontend, translation.frontend_port)
    })
}

#[inline(always)]
fn remember<P: Places>(
    places: &mut P,
    translation: Translation,
    may_replace: impl Fn(&Translation) -> bool,
) -> Remembered {
    let cookie = places.cookie();
    let translation = translation.sealed(cookie);
    if let Some(peer) = places.peer() {
        let free = peer.cookie == 0;
        if free || (peer.cookie == cookie && may_replace(&peer.translation)) {
            *peer = Peer {
                cookie,
                translation,
                last_in_flows: 0,
            };
            return Remembered::Kept;
        }
    }
    let Some(flows) = places.flows(true) else {
        return Remembered::Lost;
    };
    let remembered = flows.remember(translation);
    set_last_in_flows(places, cookie, 1);
    remembered
}

/// The translation of `frontend` that the socket used before.
#[inline(always)]
pub fn of_frontend<P: Places>(
    places: &mut P,
    frontend: &Address,
    port: u16,
) -> Option<Translation> {
    let cookie = places.cookie();
    if let Some(translation) = places.peer().and_then(|peer| peer.translation_of(cookie))
        && translation.is_of(frontend, port)
    {
        return Some(translation);
    }
    places.flows(false)?.to_frontend(frontend, port, cookie)
}

/// Notes that the socket sends through a translation that [`of_frontend`] returned.
#[inline(always)]
pub fn used<P: Places>(places: &mut P, translation: &Translation) {
    let cookie = places.cookie();
    if let Some(peer) = places.peer()
        && peer.cookie == cookie
        && peer
            .translation
            .is_of(&translation.frontend, translation.frontend_port)
    {
        if peer.last_in_flows != 0 {
            peer.last_in_flows = 0;
        }
        return;
    }
    if let Some(flows) = places.flows(false) {
        flows.touch(&translation.frontend, translation.frontend_port);
        set_last_in_flows(places, cookie, 1);
    }
}

/// The translation that leads to `endpoint`; the one used last if there are several.
#[inline(always)]
pub fn to_endpoint<P: Places>(
    places: &mut P,
    endpoint: &Address,
    port: u16,
) -> Option<Translation> {
    let cookie = places.cookie();
    let mut held = None;
    let mut last_in_flows = true;
    if let Some(peer) = places.peer()
        && peer.cookie == cookie
    {
        last_in_flows = peer.last_in_flows != 0;
        held = peer
            .translation_of(cookie)
            .filter(|held| held.leads_to(endpoint, port));
    }
    if held.is_some() && !last_in_flows {
        return held;
    }
    let flows = places.flows(false);
    flows
        .and_then(|flows| flows.from_endpoint(endpoint, port, cookie))
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
fn set_last_in_flows<P: Places>(places: &mut P, cookie: u64, value: u32) {
    if let Some(peer) = places.peer()
        && peer.cookie == cookie
    {
        peer.last_in_flows = value;
    }
}

#[cfg(test)]
mod tests;
