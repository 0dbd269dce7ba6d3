//! The Service maps that programs of every kind read, and how they are read.

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    btf_maps::{HashMap, LpmTrie, LruHashMap},
    helpers::{bpf_get_prandom_u32, bpf_ktime_get_boot_ns},
    macros::btf_map,
};
use proxy_common::{
    affinity::{AffinityValue, Client},
    endpoint::{MemberKey, MemberValue, SetKey, SetValue, SlotKey, SlotValue},
    frontend::{FrontendKey, FrontendValue},
    names,
    node::{NodeAddressKey, NodeAddressValue},
    ranges::{RangeData, RangeValue},
    tables::ServiceTables,
};

/// `BPF_F_NO_PREALLOC`.
pub const NO_PREALLOC: usize = names::NO_PREALLOC as usize;

#[btf_map]
pub static FRONTENDS: HashMap<
    FrontendKey,
    FrontendValue,
    { names::FRONTENDS as usize },
    NO_PREALLOC,
> = HashMap::new();

#[btf_map]
pub static NODE_ADDRS: HashMap<
    NodeAddressKey,
    NodeAddressValue,
    { names::NODE_ADDRS as usize },
    NO_PREALLOC,
> = HashMap::new();

#[btf_map]
pub static SETS: HashMap<SetKey, SetValue, { names::SETS as usize }, NO_PREALLOC> = HashMap::new();

#[btf_map]
pub static SLOTS: HashMap<SlotKey, SlotValue, { names::SLOTS as usize }, NO_PREALLOC> =
    HashMap::new();

#[btf_map]
pub static MEMBERS: HashMap<MemberKey, MemberValue, { names::MEMBERS as usize }, NO_PREALLOC> =
    HashMap::new();

#[btf_map]
pub static RANGES: LpmTrie<RangeData, RangeValue, { names::RANGES as usize }, NO_PREALLOC> =
    LpmTrie::new();

/// Copies a map value out, each word once: the kernel may give the element to another key
/// meanwhile, and what is checked must be what is used.
///
/// # Safety
///
/// `value` must point to a live map value of type `T`, made of whole words without padding.
#[inline(always)]
pub unsafe fn copy<T: Copy>(value: *const T) -> T {
    let mut copy = core::mem::MaybeUninit::<T>::uninit();
    // SAFETY: every word of `T` is written, and any words are a value of the map types.
    unsafe {
        copy_to(value, copy.as_mut_ptr());
        copy.assume_init()
    }
}

/// The same, to where there is room for it.
///
/// # Safety
///
/// As above; `to` must have room for a `T`.
#[inline(always)]
pub unsafe fn copy_to<T: Copy>(value: *const T, to: *mut T) {
    let (from, to) = (value.cast::<u32>(), to.cast::<u32>());
    let mut index = 0;
    while index < size_of::<T>() / size_of::<u32>() {
        // SAFETY: `index` is inside `T`, which both pointers are valid for.
        unsafe { to.add(index).write(from.add(index).read_volatile()) };
        index += 1;
    }
}

/// The kernel's maps behind `proxy_common`'s trait, for programs of one kind.
pub struct Tables<K>(pub K);

/// A kind of programs: they have a map of their own for session affinity.
pub trait Kind {
    /// What their clients are told apart by.
    type Client: Client + 'static;
    /// The map's type.
    type Affinities: Affinities<Self::Client> + 'static;

    /// The endpoint that each client used last.
    fn clients() -> &'static Self::Affinities;
}

/// A map for session affinity, of any size.
pub trait Affinities<K> {
    /// The value of `key`, for as long as the map lives.
    fn at(&self, key: &K) -> Option<*mut AffinityValue>;
    /// Writes one. Whether there was room.
    fn put(&self, key: &K, value: &AffinityValue, flags: u64) -> bool;
    /// Removes one, if it is there.
    fn forget(&self, key: &K);
}

impl<K, const N: usize> Affinities<K> for LruHashMap<K, AffinityValue, N> {
    #[inline(always)]
    fn at(&self, key: &K) -> Option<*mut AffinityValue> {
        self.get_ptr_mut(key)
    }

    #[inline(always)]
    fn put(&self, key: &K, value: &AffinityValue, flags: u64) -> bool {
        self.insert(key, value, flags).is_ok()
    }

    #[inline(always)]
    fn forget(&self, key: &K) {
        // It may be gone: a full map gives away what was not used for long.
        self.remove(key).ok();
    }
}

impl<K: Kind> ServiceTables for Tables<K> {
    type Client = K::Client;

    #[inline(always)]
    fn is_node_address(&self, key: &NodeAddressKey) -> bool {
        NODE_ADDRS.get_ptr(key).is_some()
    }

    #[inline(always)]
    fn frontend(&self, key: &FrontendKey) -> Option<FrontendValue> {
        // SAFETY: the map returned a live value of this type.
        FRONTENDS.get_ptr(key).map(|value| unsafe { copy(value) })
    }

    #[inline(always)]
    fn set(&self, set: u32) -> Option<SetValue> {
        // SAFETY: the map returned a live value of this type.
        SETS.get_ptr(SetKey { set })
            .map(|value| unsafe { copy(value) })
    }

    #[inline(always)]
    fn slot(&self, key: &SlotKey) -> Option<SlotValue> {
        // SAFETY: the map returned a live value of this type.
        SLOTS.get_ptr(key).map(|value| unsafe { copy(value) })
    }

    #[inline(always)]
    fn member(&self, set: u32, endpoint: u32) -> Option<u32> {
        MEMBERS
            .get_ptr(MemberKey { set, endpoint })
            // SAFETY: the map returned a live value of this type.
            .map(|value| unsafe { copy(value) }.index)
    }

    #[inline(always)]
    fn affinity(&self, key: &K::Client) -> Option<AffinityValue> {
        // SAFETY: the map returned a live value of this type.
        K::clients().at(key).map(|value| unsafe { copy(value) })
    }

    #[inline(always)]
    fn keep(&self, key: &K::Client, value: &AffinityValue, fresh: bool) -> bool {
        let flags = if fresh { u64::from(BPF_NOEXIST) } else { 0 };
        K::clients().put(key, value, flags)
    }

    #[inline(always)]
    fn release(&self, key: &K::Client) {
        K::clients().forget(key);
    }

    #[inline(always)]
    fn touch(&self, key: &K::Client, now: u64) {
        if let Some(value) = K::clients().at(key) {
            // SAFETY: the map returned a live value; others may read or write the word at the same
            // time, and any of the times is right.
            unsafe { (&raw mut (*value).last_used).write_volatile(now) };
        }
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
}
