//! The places where a socket's memory is, behind `proxy_common`'s trait.

use aya_ebpf::{
    helpers::bpf_get_socket_cookie,
    programs::{SockAddrContext, SockContext},
};
use proxy_common::{
    flow::{Flows, Peer, peer_index},
    memory::{self, Places},
    shared::Shared,
};

use crate::{maps, sockaddr::SockAddr};

/// The socket of a context.
pub struct Socket<'a> {
    ctx: &'a SockAddrContext,
    cookie: u64,
}

impl<'a> Socket<'a> {
    /// The socket whose hook runs.
    #[inline(always)]
    pub fn of<S: SockAddr>(socket: &'a S) -> Self {
        let ctx = socket.ctx();
        // SAFETY: the context is the kernel's.
        let cookie = unsafe { bpf_get_socket_cookie(ctx.sock_addr.cast()) };
        Self { ctx, cookie }
    }
}

impl Places for Socket<'_> {
    #[inline(always)]
    fn cookie(&self) -> u64 {
        self.cookie
    }

    #[inline(always)]
    fn peer(&mut self) -> Option<Shared<'_, Peer>> {
        place_of(self.cookie)
    }

    #[inline(always)]
    fn flows(&mut self, create: bool) -> Option<Shared<'_, Flows>> {
        // SAFETY: the context is the kernel's; new storage is zeroed, which means empty. The kernel
        // frees a socket's storage only after its programs have ended. Nobody makes a reference.
        unsafe {
            Shared::new(if create {
                maps::FLOWS.get_or_insert_ptr_mut(self.ctx, None)
            } else {
                maps::FLOWS.get_ptr_mut(self.ctx)
            })
        }
    }
}

/// The place in PEERS of the socket with this cookie.
#[inline(always)]
fn place_of<'a>(cookie: u64) -> Option<Shared<'a, Peer>> {
    let place = maps::PEERS.get_ptr_mut(peer_index(cookie, maps::PEERS_MASK.load()))?;
    // SAFETY: array values live as long as the map, and nobody makes a reference to one.
    unsafe { Shared::new(place) }
}

/// A socket is being closed: its place is free for another.
#[inline(always)]
pub fn closed(ctx: &SockContext) {
    // SAFETY: the context is the kernel's.
    let cookie = unsafe { bpf_get_socket_cookie(ctx.sock.cast()) };
    if let Some(place) = place_of(cookie) {
        memory::closed(place, cookie);
    }
}
