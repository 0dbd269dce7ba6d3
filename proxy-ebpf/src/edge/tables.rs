//! The maps of programs on devices.

use core::ptr;

use aya_ebpf::{btf_maps::LruHashMap, helpers::bpf_map_lookup_elem};
use proxy_common::{
    affinity::{AffinityValue, ClientKey},
    names,
    ranges::{RangeKey, RangeValue},
    tables::Admitting,
};

use crate::{
    maps,
    services::{self, Kind, Tables},
};

/// Programs that meet packets.
pub struct Packets;

/// The kernel's maps, for packets.
pub const EDGE: Tables<Packets> = Tables(Packets);

impl Kind for Packets {
    type Client = ClientKey;
    type Affinities = LruHashMap<ClientKey, AffinityValue, { names::CLIENTS as usize }>;

    #[inline(always)]
    fn clients() -> &'static Self::Affinities {
        &maps::CLIENTS
    }
}

impl Admitting for Tables<Packets> {
    #[inline(always)]
    fn range(&self, key: &RangeKey) -> Option<RangeValue> {
        let map = ptr::from_ref(&services::RANGES).cast_mut().cast();
        // By the helper itself: the trie's type takes its key, which has no alignment, by reference, and
        // returns one to the value.
        // SAFETY: it is a map, whose keys are of this layout.
        let value = unsafe { bpf_map_lookup_elem(map, ptr::from_ref(key).cast()) };
        // SAFETY: the map returned a live value of this type.
        (!value.is_null()).then(|| unsafe { services::copy(value.cast()) })
    }
}
