//! recvmsg and getpeername: an endpoint's address becomes the frontend that was dialled. A record
//! counts only if it leads to the address that the socket has now.

use proxy_common::{
    address::Address,
    flow::{Translation, tcp_peer_index},
    socket::{self, UDP},
};

use crate::{dial::cookie, maps, sockaddr::SockAddr};

/// A UDP socket received a datagram and wants to know from whom.
#[inline(always)]
pub fn received<S: SockAddr>(socket: &S) {
    let (endpoint, port) = (socket.address(), socket.port());
    if let Some(flow) = udp_flow(socket, &endpoint, port) {
        show_frontend(socket, &flow);
    }
}

/// A connected socket wants to know its peer.
#[inline(always)]
pub fn asked<S: SockAddr>(socket: &S) {
    let Some(protocol) = socket::service_protocol(socket.protocol()) else {
        return;
    };
    let (endpoint, port) = (socket.address(), socket.port());
    let flow = if protocol == UDP {
        udp_flow(socket, &endpoint, port)
    } else {
        tcp_peer(socket, &endpoint, port)
    };
    if let Some(flow) = flow {
        show_frontend(socket, &flow);
    }
}

#[inline(always)]
fn show_frontend<S: SockAddr>(socket: &S, flow: &Translation) {
    socket.set_address(&flow.frontend);
    socket.set_port(flow.frontend_port);
}

#[inline(always)]
fn udp_flow<S: SockAddr>(socket: &S, endpoint: &Address, port: u16) -> Option<Translation> {
    // SAFETY: the context is the kernel's.
    let flows = unsafe { maps::UDP_FLOWS.get_ptr_mut(socket.ctx()) };
    // SAFETY: not null; the kernel frees a socket's storage only after its programs have ended.
    unsafe { flows.as_ref() }?.frontend_of(endpoint, port)
}

#[inline(always)]
fn tcp_peer<S: SockAddr>(socket: &S, endpoint: &Address, port: u16) -> Option<Translation> {
    let cookie = cookie(socket);
    let place = maps::TCP_PEERS.get(tcp_peer_index(cookie))?;
    let peer = place.peer.snapshot();
    (place.cookie == cookie && peer.leads_to(endpoint, port) && peer.holds_for(cookie))
        .then_some(peer)
}
