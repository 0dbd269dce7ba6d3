//! recvmsg and getpeername: an endpoint's address becomes the frontend that was dialled. A record
//! counts only if it leads to the address that the socket has now.

use proxy_common::{memory, socket};

use crate::{places::Socket, sockaddr::SockAddr};

/// A UDP socket received a datagram and wants to know from whom.
#[inline(always)]
pub fn received<S: SockAddr>(socket: &S) {
    let (endpoint, port) = (socket.address(), socket.port());
    let memory = &mut Socket::of(socket);
    if let Some(dialled) = memory::frontend_of(memory, &endpoint, port) {
        socket.set_address(&dialled.address);
        socket.set_port(dialled.port);
    }
}

/// A connected socket wants to know its peer.
#[inline(always)]
pub fn asked<S: SockAddr>(socket: &S) {
    if socket::service_protocol(socket.protocol()).is_some() {
        received(socket);
    }
}
