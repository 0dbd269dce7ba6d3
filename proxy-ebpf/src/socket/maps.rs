//! The maps that the socket programs alone use. Sizes are defaults; the loader sets the
//! configured ones. `proxy_common::names` holds the same table for the agent.

use aya_ebpf::{
    Global,
    btf_maps::{Array, HashMap, LruHashMap, PerCpuArray, SkStorage},
    macros::btf_map,
};
use proxy_common::{
    affinity::{AffinityKey, AffinityValue},
    counters::Counters,
    flow::{self, Flows, Peer},
    names,
    service::{ServiceKey, ServiceValue},
};

use crate::services::NO_PREALLOC;

/// For the agent's next start and for people; no program reads it.
#[btf_map]
pub static SERVICES: HashMap<ServiceKey, ServiceValue, { names::SERVICES as usize }, NO_PREALLOC> =
    HashMap::new();

#[btf_map]
pub static AFFINITY: LruHashMap<AffinityKey, AffinityValue, { names::AFFINITY as usize }> =
    LruHashMap::new();

/// For the agent's next start; no program reads it.
#[btf_map]
pub static NUMBERS: Array<u32, 1> = Array::new();

#[btf_map]
pub static COUNTERS: PerCpuArray<Counters, 1> = PerCpuArray::new();

#[btf_map]
pub static PEERS: Array<Peer, { flow::PEERS as usize }> = Array::new();

#[btf_map]
pub static FLOWS: SkStorage<Flows> = SkStorage::new();

/// Set by the loader, likewise frozen: the entries of PEERS, a power of two, less one.
#[unsafe(no_mangle)]
pub static PEERS_MASK: Global<u32> = Global::new(flow::PEERS - 1);

/// Set by the loader: whose loopback addresses are the node's. 0 stands for the initial network
/// namespace.
#[unsafe(no_mangle)]
pub static HOST_NETNS: Global<u64> = Global::new(0);

/// Set by the loader; read-only and frozen, so that the verifier removes what it rules out.
#[unsafe(no_mangle)]
pub static HAS_SET_RETVAL: Global<u8> = Global::new(0);

/// Set by the loader, likewise: how a thread of the kernel is told.
#[unsafe(no_mangle)]
pub static TASK_FLAGS: Global<u32> = Global::new(0);
