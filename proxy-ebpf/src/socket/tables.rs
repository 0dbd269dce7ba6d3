//! The maps of programs on socket hooks, and what these know of who dials.

use aya_ebpf::{
    btf_maps::LruHashMap, helpers::generated::bpf_get_netns_cookie, programs::SockAddrContext,
};
use proxy_common::{
    affinity::{AffinityKey, AffinityValue},
    counters::{Counters, Event},
    names,
    tables::Dialler,
};

use crate::{
    maps,
    services::{Kind, Tables},
};

/// A program on a hook of the socket that this is about.
pub struct Hook<'a>(pub &'a SockAddrContext);

impl Hook<'_> {
    /// Cookie of the network namespace that the socket is in.
    #[inline(always)]
    fn netns(&self) -> u64 {
        // SAFETY: the context is the kernel's.
        unsafe { bpf_get_netns_cookie(self.0.sock_addr.cast()) }
    }
}

impl Kind for Hook<'_> {
    type Client = AffinityKey;
    type Affinities = LruHashMap<AffinityKey, AffinityValue, { names::AFFINITY as usize }>;

    #[inline(always)]
    fn clients() -> &'static Self::Affinities {
        &maps::AFFINITY
    }
}

impl Dialler for Tables<Hook<'_>> {
    #[inline(always)]
    fn client(&self) -> u64 {
        self.0.netns()
    }

    #[inline(always)]
    fn is_host(&self) -> bool {
        let host = match maps::HOST_NETNS.load() {
            // SAFETY: the helper takes no context for the initial network namespace.
            0 => unsafe { bpf_get_netns_cookie(core::ptr::null_mut()) },
            cookie => cookie,
        };
        self.0.netns() == host
    }

    #[inline(always)]
    fn count(&self, event: Event) {
        count(event);
    }
}

/// Adds one to the counter of `event` on this CPU.
#[inline(always)]
pub fn count(event: Event) {
    if let Some(counters) = maps::COUNTERS.get_ptr_mut(0) {
        // SAFETY: the map returned this CPU's live value; a program is not moved to another CPU
        // while it runs. A program that preempts this one may lose a count, nothing else.
        unsafe {
            let counter = Counters::of(counters, event);
            counter.write_volatile(counter.read_volatile() + 1);
        }
    }
}
