//! The places where a socket's memory is, behind `proxy_common`'s trait.

use aya_ebpf::{
    helpers::bpf_get_socket_cookie,
    programs::{SockAddrContext, SockContext},
};
use proxy_common::{
    flow::{Flows, Peer, peer_index},
    memory::{self, Places},
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
    fn peer(&mut self) -> Option<&mut Peer> {
        // SAFETY: array values live as long as the map. Other CPUs may write at the same time: a
        // record that became a mixture does not hold (see `proxy_common::flow`).
        maps::PEERS
            .get_ptr_mut(peer_index(self.cookie, maps::PEERS_MASK.load()))
            .and_then(|peer| unsafe { peer.as_mut() })
    }

    #[inline(always)]
    fn flows(&mut self, create: bool) -> Option<&mut Flows> {
        // SAFETY: the context is the kernel's; new storage is zeroed, which means empty. The
        // kernel frees a socket's storage only after its programs have ended. Other CPUs: as above.
        unsafe {
            let flows = if create {
                maps::FLOWS.get_or_insert_ptr_mut(self.ctx, None)
            } else {
                maps::FLOWS.get_ptr_mut(self.ctx)
            };
            flows.as_mut()
        }
    }
}

/// A socket is being closed: its place is free for another.
#[inline(always)]
pub fn closed(ctx: &SockContext) {
    // SAFETY: the context is the kernel's.
    let cookie = unsafe { bpf_get_socket_cookie(ctx.sock.cast()) };
    if let Some(place) = maps::PEERS.get_ptr_mut(peer_index(cookie, maps::PEERS_MASK.load())) {
        // SAFETY: array values live as long as the map; see `Places::peer`.
        memory::closed(unsafe { &mut *place }, cookie);
    }
}
