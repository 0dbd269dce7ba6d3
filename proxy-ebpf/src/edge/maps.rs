//! The maps that the programs on devices alone use. Sizes are defaults; the loader sets the
//! configured ones. `proxy_common::names` holds the same table for the agent.

use aya_ebpf::{
    btf_maps::{Array, HashMap, LruHashMap, PerCpuArray, PerCpuHashMap},
    helpers::{bpf_ktime_get_boot_ns, generated::bpf_jiffies64},
    macros::btf_map,
};
use proxy_common::{
    affinity::{AffinityValue, ClientKey},
    names,
    node::{NodeAddressKey, NodeAddressValue},
    track::{
        ConnectionKey, ConnectionValue, FragmentKey, FragmentValue, Settings, SourceKey,
        SourceValue, Work, reason::Counted,
    },
};

#[btf_map]
pub static CLIENTS: LruHashMap<ClientKey, AffinityValue, { names::CLIENTS as usize }> =
    LruHashMap::new();

#[btf_map]
pub static TRACK: HashMap<ConnectionKey, ConnectionValue, { names::TRACK as usize }> =
    HashMap::new();

#[btf_map]
pub static OPENING: LruHashMap<ConnectionKey, ConnectionValue, { names::OPENING as usize }> =
    LruHashMap::new();

#[btf_map]
pub static FRAGMENTS: LruHashMap<FragmentKey, FragmentValue, { names::FRAGMENTS as usize }> =
    LruHashMap::new();

#[btf_map]
pub static SOURCES: HashMap<
    SourceKey,
    SourceValue,
    { names::SOURCES as usize },
    { names::NO_PREALLOC as usize },
> = HashMap::new();

#[btf_map]
pub static OWN_ADDRS: HashMap<
    NodeAddressKey,
    NodeAddressValue,
    { names::OWN_ADDRS as usize },
    { names::NO_PREALLOC as usize },
> = HashMap::new();

#[btf_map]
pub static PORTS: Array<u32, { names::RESERVED_WORDS as usize }> = Array::new();

#[btf_map]
pub static SETTINGS: Array<Settings, 1> = Array::new();

/// Flows in TRACK, about.
#[btf_map]
pub static TRACKED: Array<u64, 1> = Array::new();

/// Seconds since boot, above 32 bits of the kernel's ticks at which they were read.
#[btf_map]
pub static CLOCK: Array<u64, 1> = Array::new();

/// The agent makes an entry for each device that is served, and one for all others.
#[btf_map]
pub static REASONS: PerCpuHashMap<
    u32,
    Counted,
    { names::REASONS as usize },
    { names::NO_PREALLOC as usize },
> = PerCpuHashMap::new();

/// What a program remembers while it looks at one packet, for each CPU: on one, no packet is looked at
/// before the last one is done with.
#[btf_map]
pub static WORK: PerCpuArray<Work, 2> = PerCpuArray::new();

/// Which part of WORK is for packets.
pub const OF_PACKETS: u32 = 0;
/// Which part of WORK is for the sweeping program: packets may come meanwhile.
pub const OF_SWEEPS: u32 = 1;

/// A part of this CPU's WORK.
#[inline(always)]
pub fn work<'a>(part: u32) -> Option<&'a mut Work> {
    let work = WORK.get_ptr_mut(part)?;
    // SAFETY: nobody else is on this CPU's part while the program runs, which is not moved to another
    // CPU. The memory began as zeros, and every enumeration in it has a variant zero; since then only
    // programs wrote it.
    unsafe { work.as_mut() } // exclusive
}

/// Counts a packet that was not translated, or not let through.
#[inline(always)]
pub fn count(device: u32, reason: u32) {
    let found = REASONS.get_ptr_mut(device);
    let Some(counted) = found.or_else(|| REASONS.get_ptr_mut(0)) else {
        return;
    };
    // SAFETY: the map returned this CPU's live value; a program is not moved to another CPU while it
    // runs. One that interrupts this one may lose a count, nothing else.
    unsafe {
        let packets = Counted::of(counted, reason);
        packets.write_volatile(packets.read_volatile() + 1);
    }
}

/// Changes the number of flows in TRACK, roughly: of two CPUs that do so at once, one may be lost.
/// The agent writes the true number again and again.
#[inline(always)]
pub fn count_flows(by: i64) {
    if let Some(tracked) = TRACKED.get_ptr_mut(0) {
        // SAFETY: the map returned a live value, which is read and written as a whole.
        unsafe { tracked.write_volatile(tracked.read_volatile().saturating_add_signed(by)) };
    }
}

/// Seconds since boot. To read the clock takes far longer than to count ticks: it is read once a tick,
/// which is shorter than anything that is counted in seconds.
#[inline(always)]
pub fn seconds() -> u32 {
    const SECOND: u64 = 1_000_000_000;
    const TICKS: u64 = 0xffff_ffff;
    // SAFETY: the helper has no precondition.
    let tick = unsafe { bpf_jiffies64() } & TICKS;
    let Some(clock) = CLOCK.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: the map returned a live value, which is read and written as a whole; whoever read the
    // clock at this tick is right.
    unsafe {
        let read = clock.read_volatile();
        if read & TICKS == tick {
            return (read >> 32) as u32;
        }
        let seconds = bpf_ktime_get_boot_ns() / SECOND;
        clock.write_volatile(seconds << 32 | tick);
        seconds as u32
    }
}
