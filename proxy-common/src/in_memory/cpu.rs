//! What programs see of the maps: on one CPU, or on several in an order that is chosen.

use core::{cell::Cell, hash::Hasher as _};
use std::{collections::hash_map::DefaultHasher, vec::Vec};

use super::{
    Bytes,
    entries::Entries,
    interleaved::{Shared, Touch},
    maps::Maps,
};
use crate::{
    affinity::{AffinityValue, ClientKey},
    endpoint::{Endpoint, SetValue, SlotKey, SlotValue},
    frontend::{FrontendKey, FrontendValue},
    node::NodeAddressKey,
    packet::{Covers, Packet, Pod, Sum, Words},
    ranges::{RangeKey, RangeValue},
    tables::{Admitting, ServiceTables},
    track::{
        Added, ConnectionKey, ConnectionValue, Connections, FragmentKey, FragmentValue, Fragments,
        Network, Setting, Settings, SourceKey, SourceValue, Sources, Table, Work,
    },
};

/// What the program on one CPU sees. The Service maps do not change while it runs.
pub struct Cpu<'a> {
    maps: &'a Shared<Maps>,
    /// Its number, where others run at the same time.
    number: Option<usize>,
    drawn: Cell<u32>,
}

impl<'a> Cpu<'a> {
    /// What the program on the CPU of this number sees; without one, nothing else runs.
    pub fn new(maps: &'a Shared<Maps>, number: Option<usize>) -> Self {
        let drawn = Cell::new(0);
        Self {
            maps,
            number,
            drawn,
        }
    }

    /// The endpoints of a set, to choose from.
    fn endpoints(&self, set: u32) -> Option<Vec<Endpoint>> {
        self.maps.now(|maps| {
            let before = maps.sets_before.as_ref().filter(|_| self.number == Some(0));
            before.unwrap_or(&maps.sets).get(&set).cloned()
        })
    }

    fn reach<R>(&self, what: u64, changes: bool, act: impl FnOnce(&mut Maps) -> R) -> R {
        match self.number {
            Some(cpu) => self.maps.reach(cpu, Touch { what, changes }, act),
            None => self.maps.now(act),
        }
    }

    /// An operation on an entry.
    fn entry<R>(
        &self,
        (table, key): (Table, &ConnectionKey),
        changes: bool,
        act: impl FnOnce(&mut Entries) -> R,
    ) -> R {
        let recycles = self.maps.now(|maps| maps.table(table).recycles);
        // What is given to other keys may be anybody's.
        let what = hash(&(table as u8, (!recycles).then_some(key)));
        self.reach(what, changes, |maps| act(maps.table(table)))
    }

    /// A socket of this node opens, that gets what `key` says.
    pub fn opens(&self, key: ConnectionKey) {
        self.socket(&key, true, |sockets| sockets.push(key));
    }

    fn socket<R>(
        &self,
        key: &ConnectionKey,
        changes: bool,
        act: impl FnOnce(&mut Vec<ConnectionKey>) -> R,
    ) -> R {
        self.reach(hash(&("socket", key)), changes, |maps| {
            act(&mut maps.sockets)
        })
    }

    fn write(&self, at: &At, act: impl FnOnce(&mut ConnectionValue)) {
        let (table, key, index) = at;
        self.entry((*table, key), true, |entries| entries.write(*index, act));
    }
}

fn hash(what: &impl core::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// An entry that was found, in its memory.
type At = (Table, ConnectionKey, usize);

impl Connections for Cpu<'_> {
    type At = At;

    fn find(
        &self,
        table: Table,
        key: &ConnectionKey,
        value: &mut ConnectionValue,
    ) -> Option<Self::At> {
        self.entry((table, key), false, |entries| {
            let (index, found) = entries.find(key)?;
            *value = found;
            Some((table, *key, index))
        })
    }
    fn has(&self, table: Table, key: &ConnectionKey) -> bool {
        self.entry((table, key), false, |entries| entries.find(key).is_some())
    }
    fn has_serial(&self, table: Table, key: &ConnectionKey, serial: u32) -> bool {
        self.entry((table, key), false, |entries| {
            entries
                .find(key)
                .is_some_and(|(_, found)| found.serial == serial)
        })
    }
    fn add(&self, table: Table, key: &ConnectionKey, value: &ConnectionValue) -> Added {
        self.entry((table, key), true, |entries| entries.add(*key, *value))
    }
    fn remove(&self, table: Table, key: &ConnectionKey) -> bool {
        self.entry((table, key), true, |entries| entries.remove(key))
    }
    fn set_last(&self, at: Self::At, last: u32) {
        self.write(&at, |value| value.last = last);
    }
    fn set_state(&self, at: Self::At, state: u32) {
        self.write(&at, |value| value.state = state);
    }
    fn set_sequence(&self, at: Self::At, sequence: u32) {
        self.write(&at, |value| value.sequence = sequence);
    }
    fn set_acknowledged(&self, at: Self::At, acknowledged: u32) {
        self.write(&at, |value| value.acknowledged = acknowledged);
    }
    fn set_refusal(&self, at: Self::At, refusal: u32) {
        self.write(&at, |value| value.refusal = refusal);
    }
    fn set_since(&self, at: Self::At, since: u32) {
        self.write(&at, |value| value.since = since);
    }
    fn count_flows(&self, by: i64) {
        // Of two that add, it does not matter who is first.
        self.reach(0, false, |maps| maps.flows += by);
    }
    fn flows(&self) -> u64 {
        self.reach(0, true, |maps| u64::try_from(maps.flows).unwrap_or(0))
    }
    fn seconds(&self) -> u32 {
        self.maps.now(|maps| maps.seconds)
    }
    fn setting(&self, which: Setting) -> u32 {
        let settings = self.maps.now(|maps| maps.settings);
        #[expect(unsafe_code, reason = "as programs read it")]
        // SAFETY: they live as long as this function.
        unsafe {
            *Settings::of(&raw const settings, which)
        }
    }
    fn is_own(&self, address: &NodeAddressKey) -> bool {
        self.maps.now(|maps| maps.own_addresses.contains(address))
    }
    fn is_pod(&self, address: &Words) -> bool {
        self.maps.now(|maps| maps.settings.is_pod(address))
    }
}

impl Fragments for Cpu<'_> {
    fn remember(&self, key: &FragmentKey, value: &FragmentValue) {
        self.reach(hash(key), true, |maps| maps.fragments.insert(*key, *value));
    }
    fn recall(&self, key: &FragmentKey) -> Option<FragmentValue> {
        self.reach(hash(key), false, |maps| maps.fragments.get(key).copied())
    }
}

impl ServiceTables for Cpu<'_> {
    type Client = ClientKey;

    fn is_node_address(&self, key: &NodeAddressKey) -> bool {
        self.maps.now(|maps| maps.node_addresses.contains(key))
    }
    fn frontend(&self, key: &FrontendKey) -> Option<FrontendValue> {
        self.maps.now(|maps| maps.frontends.get(key).copied())
    }
    fn set(&self, set: u32) -> Option<SetValue> {
        let count = self.endpoints(set)?.len();
        Some(SetValue::new(set, u32::try_from(count).unwrap()))
    }
    fn slot(&self, key: &SlotKey) -> Option<SlotValue> {
        let endpoints = self.endpoints(key.set)?;
        Some(SlotValue::new(key.set, endpoints.get(key.index as usize)?))
    }
    fn member(&self, set: u32, endpoint: u32) -> Option<u32> {
        self.maps.now(|maps| {
            let mut here = maps.sets.get(&set)?.iter();
            let index = here.position(|one| one.number == endpoint)?;
            u32::try_from(index).ok()
        })
    }
    fn affinity(&self, key: &ClientKey) -> Option<AffinityValue> {
        self.reach(hash(key), false, |maps| maps.clients.get(key).copied())
    }
    fn keep(&self, key: &ClientKey, value: &AffinityValue, fresh: bool) -> bool {
        self.reach(hash(key), true, |maps| {
            if fresh && maps.clients.contains_key(key) {
                return false;
            }
            maps.clients.insert(*key, *value);
            true
        })
    }
    fn release(&self, key: &ClientKey) {
        self.reach(hash(key), true, |maps| maps.clients.remove(key));
    }
    fn touch(&self, key: &ClientKey, now: u64) {
        self.reach(hash(key), true, |maps| {
            if let Some(value) = maps.clients.get_mut(key) {
                value.last_used = now;
            }
        });
    }
    fn now(&self) -> u64 {
        u64::from(self.seconds()) * 1_000_000_000
    }
    fn random(&self) -> u32 {
        // The same in each run, whoever comes first.
        let number = match self.number {
            Some(cpu) => {
                self.drawn.set(self.drawn.get() + 1);
                (cpu as u32 + 1) << 16 | self.drawn.get()
            }
            None => self.maps.now(|maps| {
                maps.random += 1;
                maps.random
            }),
        };
        number.wrapping_mul(0x9e37_79b1)
    }
}

impl Admitting for Cpu<'_> {
    fn range(&self, key: &RangeKey) -> Option<RangeValue> {
        let is_in = |range: &RangeKey| range.contains(key.service, key.address);
        self.maps
            .now(|maps| maps.ranges.iter().find(|(range, _)| is_in(range)).copied())
            .map(|(_, value)| value)
    }
}

impl Sources for Cpu<'_> {
    fn source(&self, key: &SourceKey, value: &mut SourceValue) -> bool {
        let found = self.maps.now(|maps| maps.sources.get(key).copied());
        *value = found.unwrap_or(*value);
        found.is_some()
    }
    fn is_reserved(&self, port: u16) -> bool {
        self.maps.now(|maps| maps.reserved.contains(&port))
    }
}

/// A packet that a program on this CPU meets.
pub struct Met<'a> {
    pub(super) cpu: &'a Cpu<'a>,
    pub(super) packet: Bytes,
}

impl Packet for Met<'_> {
    fn read<T: Pod>(&self, at: u32) -> Option<T> {
        self.packet.read(at)
    }
    fn write<T: Pod>(&mut self, at: u32, value: &T) -> bool {
        self.packet.write(at, value)
    }
    fn fix_sum(&mut self, at: u32, from: &Words, to: &Words, covers: Covers, sum: Sum) -> bool {
        self.packet.fix_sum(at, from, to, covers, sum)
    }
    fn fix_sum_half(&mut self, at: u32, from: u16, to: u16, sum: Sum) -> bool {
        self.packet.fix_sum_half(at, from, to, sum)
    }
}

impl Network for Met<'_> {
    fn find_way(&self, work: &mut Work) {
        (work.second.device, work.second.hop) = self.cpu.maps.now(|maps| maps.way);
    }
    fn has_socket(&self, work: &mut Work) -> bool {
        let key = work.second.back;
        self.cpu
            .socket(&key, false, |sockets| sockets.contains(&key))
    }
}
