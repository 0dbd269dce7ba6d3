//! The maps of programs on devices.

use aya_ebpf::btf_maps::LruHashMap;
use proxy_common::{
    affinity::{AffinityValue, ClientKey},
    names,
};

use crate::{
    maps,
    services::{Kind, Tables},
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
