//! The maps of flows behind `proxy_common`'s traits.

use aya_ebpf::bindings::BPF_NOEXIST;
use proxy_common::{
    node::NodeAddressKey,
    packet::Words,
    track::{
        Added, ConnectionKey, ConnectionValue, Connections, FragmentKey, FragmentValue, Fragments,
        PODS_V4, PODS_V6, Setting, Settings, Table,
    },
};

use crate::{
    maps,
    services::{self, Tables},
    tables::Packets,
};

const EEXIST: i64 = -17;

impl Connections for Tables<Packets> {
    type At = *mut ConnectionValue;

    #[inline(always)]
    fn find(
        &self,
        table: Table,
        key: &ConnectionKey,
        value: &mut ConnectionValue,
    ) -> Option<Self::At> {
        let at = match table {
            Table::Track => maps::TRACK.get_ptr_mut(key),
            Table::Opening => maps::OPENING.get_ptr_mut(key),
        }?;
        // SAFETY: the map returned a live value of this type.
        unsafe { services::copy_to(at, value) };
        Some(at)
    }

    #[inline(always)]
    fn has(&self, table: Table, key: &ConnectionKey) -> bool {
        match table {
            Table::Track => maps::TRACK.get_ptr(key),
            Table::Opening => maps::OPENING.get_ptr(key),
        }
        .is_some()
    }

    #[inline(always)]
    fn has_serial(&self, table: Table, key: &ConnectionKey, serial: u32) -> bool {
        match table {
            Table::Track => maps::TRACK.get_ptr(key),
            Table::Opening => maps::OPENING.get_ptr(key),
        }
        // SAFETY: the map returned a live value of this type.
        .is_some_and(|at| unsafe { (&raw const (*at).serial).read_volatile() } == serial)
    }

    #[inline(always)]
    fn add(&self, table: Table, key: &ConnectionKey, value: &ConnectionValue) -> Added {
        let flags = u64::from(BPF_NOEXIST);
        let added = match table {
            Table::Track => maps::TRACK.insert(key, value, flags),
            Table::Opening => {
                let added = maps::OPENING.insert(key, value, flags);
                // One that nobody has looked up yet is among the first that give way, however new it is.
                let _ = maps::OPENING.get_ptr(key);
                added
            }
        };
        match added {
            Ok(()) => Added::Added,
            Err(error) if i64::from(error) == EEXIST => Added::Exists,
            Err(_) => Added::Full,
        }
    }

    #[inline(always)]
    fn remove(&self, table: Table, key: &ConnectionKey) -> bool {
        match table {
            Table::Track => maps::TRACK.remove(key),
            Table::Opening => maps::OPENING.remove(key),
        }
        .is_ok()
    }

    #[inline(always)]
    fn set_last(&self, at: Self::At, last: u32) {
        // SAFETY: a value of a map lives as long as the map; whose it is by now, nobody knows, and
        // each word of it is written at once.
        unsafe { (&raw mut (*at).last).write_volatile(last) }
    }

    #[inline(always)]
    fn set_state(&self, at: Self::At, state: u32) {
        // SAFETY: as above; the word says which flow it is about.
        unsafe { (&raw mut (*at).state).write_volatile(state) }
    }

    #[inline(always)]
    fn set_sequence(&self, at: Self::At, sequence: u32) {
        // SAFETY: as above.
        unsafe { (&raw mut (*at).sequence).write_volatile(sequence) }
    }

    #[inline(always)]
    fn set_acknowledged(&self, at: Self::At, acknowledged: u32) {
        // SAFETY: as above.
        unsafe { (&raw mut (*at).acknowledged).write_volatile(acknowledged) }
    }

    #[inline(always)]
    fn set_refusal(&self, at: Self::At, refusal: u32) {
        // SAFETY: as above.
        unsafe { (&raw mut (*at).refusal).write_volatile(refusal) }
    }

    #[inline(always)]
    fn set_since(&self, at: Self::At, since: u32) {
        // SAFETY: as above.
        unsafe { (&raw mut (*at).since).write_volatile(since) }
    }

    #[inline(always)]
    fn count_flows(&self, by: i64) {
        maps::count_flows(by);
    }

    #[inline(always)]
    fn flows(&self) -> u64 {
        // SAFETY: the map returned a live value.
        maps::TRACKED
            .get_ptr(0)
            .map_or(0, |tracked| unsafe { tracked.read_volatile() })
    }

    #[inline(always)]
    fn seconds(&self) -> u32 {
        maps::seconds()
    }

    #[inline(always)]
    fn setting(&self, which: Setting) -> u32 {
        // The only key of an array is always there.
        maps::SETTINGS
            .get_ptr(0)
            // SAFETY: the map returned a live value of this type.
            .map_or(0, |settings| unsafe {
                Settings::of(settings, which).read_volatile()
            })
    }

    #[inline(always)]
    fn is_own(&self, address: &NodeAddressKey) -> bool {
        maps::OWN_ADDRS.get_ptr(address).is_some()
    }

    #[inline(always)]
    fn is_pod(&self, address: &Words) -> bool {
        let flags = self.setting(Setting::Flags);
        let within = |flag: u32, range: usize| {
            flags & flag != 0
                && maps::SETTINGS.get_ptr(0).is_some_and(|settings| {
                    // SAFETY: the map returned a live value of this type.
                    unsafe { services::copy(&raw const (*settings).pods[range]) }.contains(address)
                })
        };
        within(PODS_V4, 0) || within(PODS_V6, 1)
    }
}

impl Fragments for Tables<Packets> {
    #[inline(always)]
    fn remember(&self, key: &FragmentKey, value: &FragmentValue) {
        // Without room the later fragments are lost, and sent again.
        maps::FRAGMENTS.insert(key, value, 0).ok();
    }

    #[inline(always)]
    fn recall(&self, key: &FragmentKey) -> Option<FragmentValue> {
        // SAFETY: the map returned a live value of this type.
        maps::FRAGMENTS
            .get_ptr(key)
            .map(|value| unsafe { services::copy(value) })
    }
}
