//! The Service maps behind `proxy_common`'s trait.

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    helpers::{bpf_get_prandom_u32, bpf_ktime_get_boot_ns, generated::bpf_get_netns_cookie},
    programs::SockAddrContext,
};
use proxy_common::{
    affinity::{AffinityKey, AffinityValue},
    counters::{Counters, Event},
    endpoint::{MemberKey, SetKey, SetValue, SlotKey, SlotValue},
    frontend::{FrontendKey, FrontendValue},
    node::NodeAddressKey,
    tables::ServiceTables,
};

use crate::maps;

/// The kernel's maps, for the socket whose hook runs.
pub struct Kernel<'a>(pub &'a SockAddrContext);

/// Copies a map value out, each word once: the kernel may give the element to another key
/// meanwhile, and what is checked must be what is used.
///
/// # Safety
///
/// `value` must point to a live map value of type `T`, made of whole words without padding.
#[inline(always)]
unsafe fn copy<T: Copy>(value: *const T) -> T {
    let mut copy = core::mem::MaybeUninit::<T>::uninit();
    let (from, to) = (value.cast::<u32>(), copy.as_mut_ptr().cast::<u32>());
    let mut index = 0;
    while index < size_of::<T>() / size_of::<u32>() {
        // SAFETY: `index` is inside `T`, which both pointers are valid for.
        unsafe { to.add(index).write(from.add(index).read_volatile()) };
        index += 1;
    }
    // SAFETY: every word of `T` was written, and any words are a value of the map types.
    unsafe { copy.assume_init() }
}

impl ServiceTables for Kernel<'_> {
    #[inline(always)]
    fn is_node_address(&self, key: &NodeAddressKey) -> bool {
        maps::NODE_ADDRS.get_ptr(key).is_some()
    }

    #[inline(always)]
    fn frontend(&self, key: &FrontendKey) -> Option<FrontendValue> {
        // SAFETY: the map returned a live value of this type.
        maps::FRONTENDS
            .get_ptr(key)
            .map(|value| unsafe { copy(value) })
    }

    #[inline(always)]
    fn set(&self, set: u32) -> Option<SetValue> {
        // SAFETY: the map returned a live value of this type.
        maps::SETS
            .get_ptr(SetKey { set })
            .map(|value| unsafe { copy(value) })
    }

    #[inline(always)]
    fn slot(&self, key: &SlotKey) -> Option<SlotValue> {
        // SAFETY: the map returned a live value of this type.
        maps::SLOTS.get_ptr(key).map(|value| unsafe { copy(value) })
    }

    #[inline(always)]
    fn member(&self, set: u32, endpoint: u32) -> Option<u32> {
        maps::MEMBERS
            .get_ptr(MemberKey { set, endpoint })
            // SAFETY: the map returned a live value of this type.
            .map(|value| unsafe { copy(value) }.index)
    }

    #[inline(always)]
    fn affinity(&self, key: &AffinityKey) -> Option<AffinityValue> {
        // SAFETY: the map returned a live value of this type.
        maps::AFFINITY
            .get_ptr(key)
            .map(|value| unsafe { copy(value) })
    }

    #[inline(always)]
    fn keep(&self, key: &AffinityKey, value: &AffinityValue, fresh: bool) -> bool {
        let flags = if fresh { u64::from(BPF_NOEXIST) } else { 0 };
        maps::AFFINITY.insert(key, value, flags).is_ok()
    }

    #[inline(always)]
    fn release(&self, key: &AffinityKey) {
        // It may be gone: a full map gives away what was not used for long.
        maps::AFFINITY.remove(key).ok();
    }

    #[inline(always)]
    fn touch(&self, key: &AffinityKey, now: u64) {
        if let Some(value) = maps::AFFINITY.get_ptr_mut(key) {
            // SAFETY: the map returned a live value; others may read or write the word at the same
            // time, and any of the times is right.
            unsafe { core::ptr::addr_of_mut!((*value).last_used).write_volatile(now) };
        }
    }

    #[inline(always)]
    fn client(&self) -> u64 {
        // SAFETY: the context is the kernel's.
        unsafe { bpf_get_netns_cookie(self.0.sock_addr.cast()) }
    }

    #[inline(always)]
    fn is_host(&self) -> bool {
        let host = match maps::HOST_NETNS.load() {
            // SAFETY: the helper takes no context for the initial network namespace.
            0 => unsafe { bpf_get_netns_cookie(core::ptr::null_mut()) },
            cookie => cookie,
        };
        self.client() == host
    }

    #[inline(always)]
    fn now(&self) -> u64 {
        // SAFETY: the helper has no precondition.
        unsafe { bpf_ktime_get_boot_ns() }
    }

    #[inline(always)]
    fn random(&self) -> u32 {
        // SAFETY: the helper has no precondition.
        unsafe { bpf_get_prandom_u32() }
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
