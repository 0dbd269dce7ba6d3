//! Compares entries of the Service maps with what they should be. Pure. Needs no memory worth
//! speaking of while nothing differs, however many entries there are.

use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
    hash::Hash,
};

use proxy_common::{
    address,
    endpoint::{MemberKey, MemberValue, SetKey, SetValue, SlotKey, SlotValue},
    ranges::{RangeKey, RangeValue},
    service::{ServiceKey, ServiceValue},
};
use proxy_model::ServicePortKey;

use super::{
    encode,
    entry::{Entries, Entry, Key},
    programmed::{Programmed, ProgrammedService, ProgrammedSet, Usage},
};

/// A key under which the maps do not hold what they should; at least one side is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// The key.
    pub key: Key,
    /// What should be there.
    pub wanted: Option<Entry>,
    /// What is there.
    pub found: Option<Entry>,
}

/// What should be in the maps, found by number.
pub struct Expected<'a> {
    programmed: &'a Programmed,
    services: HashMap<u32, (&'a ServicePortKey, &'a ProgrammedService)>,
    sets: HashMap<u32, Owned<'a>>,
}

/// A set and whose it is.
#[derive(Clone, Copy)]
struct Owned<'a> {
    key: &'a ServicePortKey,
    service: &'a ProgrammedService,
    set: &'a ProgrammedSet,
}

impl<'a> Expected<'a> {
    /// What the maps should hold, if they are what `programmed` says.
    pub fn new(programmed: &'a Programmed) -> Self {
        let mut expected = Self {
            programmed,
            services: HashMap::with_capacity(programmed.services.len()),
            sets: HashMap::with_capacity(programmed.services.len()),
        };
        for (key, service) in &programmed.services {
            expected.services.insert(service.number, (key, service));
            for set in service.sets() {
                expected
                    .sets
                    .insert(set.number, Owned { key, service, set });
            }
        }
        expected
    }

    /// How many entries each map should hold.
    pub fn usage(&self) -> Usage {
        let endpoints = self.sets.values().map(|owned| owned.set.slots.len()).sum();
        Usage {
            services: self.services.len(),
            frontends: self.programmed.frontends.len(),
            sets: self.sets.len(),
            slots: endpoints,
            members: endpoints,
            ranges: self.ranges().count(),
            node_addresses: self.programmed.node_addresses.len(),
        }
    }

    /// Every key that does not hold what it should, in the order in which to mend them: first
    /// what is to be written, what is pointed to before what points to it; then what is to be
    /// removed, the other way round.
    pub fn mismatches(&self, found: &Entries) -> Vec<Mismatch> {
        let usage = self.usage();
        let mut all = Vec::new();
        column(
            (&found.services, usage.services),
            |key, _| self.service(*key),
            || {
                let keys = self
                    .services
                    .keys()
                    .map(|service| ServiceKey { service: *service });
                keys.filter_map(|key| Some((key, self.service(key)?)))
            },
            Entry::Service,
            &mut all,
        );
        column(
            (&found.slots, usage.slots),
            |key, _| self.sets.get(&key.set)?.slot(key.index),
            || {
                self.sets.iter().flat_map(|(set, owned)| {
                    let slots =
                        (0..owned.set.count()).map(|index| (SlotKey { set: *set, index }, index));
                    slots.filter_map(|(key, index)| Some((key, owned.slot(index)?)))
                })
            },
            Entry::Slot,
            &mut all,
        );
        column(
            (&found.members, usage.members),
            |key, value| self.sets.get(&key.set)?.member(key.endpoint, value.index),
            || {
                self.sets.iter().flat_map(|(set, owned)| {
                    owned
                        .set
                        .slots
                        .iter()
                        .zip(0..)
                        .filter_map(|(address, index)| {
                            let endpoint = *owned.service.endpoints.get(address)?;
                            let key = MemberKey {
                                set: *set,
                                endpoint,
                            };
                            Some((key, MemberValue { index }))
                        })
                })
            },
            Entry::Member,
            &mut all,
        );
        let count = |set: &u32| Some(SetValue::new(*set, self.sets.get(set)?.set.count()));
        column(
            (&found.sets, usage.sets),
            |key, _| count(&key.set),
            || {
                self.sets
                    .keys()
                    .filter_map(|set| Some((SetKey { set: *set }, count(set)?)))
            },
            Entry::Set,
            &mut all,
        );
        column(
            (&found.ranges, usage.ranges),
            |key, _| self.range(key),
            || {
                let keys = self.ranges();
                keys.filter_map(|key| Some((*key, self.range(key)?)))
            },
            Entry::Range,
            &mut all,
        );
        column(
            (&found.frontends, usage.frontends),
            |key, _| self.programmed.frontends.get(key).copied(),
            || {
                self.programmed
                    .frontends
                    .iter()
                    .map(|(key, value)| (*key, *value))
            },
            Entry::Frontend,
            &mut all,
        );
        let addresses = &self.programmed.node_addresses;
        column(
            (&found.node_addresses, usage.node_addresses),
            |key, _| {
                let address = address::to_ip(key.address);
                addresses
                    .contains(&address)
                    .then(|| encode::node_address(address).1)
            },
            || addresses.iter().copied().map(encode::node_address),
            Entry::NodeAddress,
            &mut all,
        );
        all.sort_by(order);
        all
    }

    /// The Service port that a key belongs to, or would, by what should be there or by what is.
    pub fn owner(&self, mismatch: &Mismatch) -> Option<ServicePortKey> {
        let by_number = |number: &u32| Some(self.services.get(number)?.0);
        let by_set = |set: &u32| Some(self.sets.get(set)?.key);
        let owner = match &mismatch.key {
            Key::Service(key) => by_number(&key.service),
            Key::Slot(key) => by_set(&key.set),
            Key::Member(key) => by_set(&key.set),
            Key::Set(key) => by_set(&key.set),
            Key::Range(key) => by_number(&key.service),
            Key::Frontend(_) => {
                [mismatch.wanted, mismatch.found]
                    .iter()
                    .flatten()
                    .find_map(|entry| match entry {
                        Entry::Frontend(_, value) => by_number(&value.service),
                        _ => None,
                    })
            }
            Key::NodeAddress(_) => None,
        };
        owner.cloned()
    }

    fn range(&self, key: &RangeKey) -> Option<RangeValue> {
        let (_, service) = self.services.get(&key.service)?;
        let value = RangeValue::new(key.service);
        service.ranges.contains(key).then_some(value)
    }

    fn ranges(&self) -> impl Iterator<Item = &RangeKey> {
        let services = self.services.values();
        services.flat_map(|(_, service)| &service.ranges)
    }

    fn service(&self, key: ServiceKey) -> Option<ServiceValue> {
        let (name, _) = self.services.get(&key.service)?;
        encode::service_value(key.service, name)
    }
}

impl Owned<'_> {
    fn slot(&self, index: u32) -> Option<SlotValue> {
        let address = *self.set.slots.get(index as usize)?;
        let endpoint = *self.service.endpoints.get(&address)?;
        let is_here = self.set.is_here(&address);
        Some(encode::slot_value(
            self.set.number,
            endpoint,
            address,
            is_here,
        ))
    }

    /// `index` is where the endpoint probably is.
    fn member(&self, endpoint: u32, index: u32) -> Option<MemberValue> {
        let number = |address| self.service.endpoints.get(address).copied();
        let there = self.set.slots.get(index as usize);
        if there.and_then(number) == Some(endpoint) {
            return Some(MemberValue { index });
        }
        let mut slots = self.set.slots.iter().zip(0..);
        slots
            .find(|(address, _)| number(address) == Some(endpoint))
            .map(|(_, index)| MemberValue { index })
    }
}

/// Compares one map: what was found, and how many entries there should be.
fn column<K, V, A>(
    (found, expected): (&[(K, V)], usize),
    wanted: impl Fn(&K, &V) -> Option<V>,
    all: impl Fn() -> A,
    entry_of: fn(K, V) -> Entry,
    mismatches: &mut Vec<Mismatch>,
) where
    K: Copy + Eq + Hash,
    V: Copy + PartialEq,
    A: Iterator<Item = (K, V)>,
{
    let mut known = 0;
    for (key, value) in found {
        let wanted = wanted(key, value);
        known += usize::from(wanted.is_some());
        if wanted.as_ref() != Some(value) {
            let found = entry_of(*key, *value);
            mismatches.push(Mismatch {
                key: found.key(),
                wanted: wanted.map(|wanted| entry_of(*key, wanted)),
                found: Some(found),
            });
        }
    }
    if known == expected {
        return;
    }
    let found: HashSet<K> = found.iter().map(|(key, _)| *key).collect();
    for (key, value) in all().filter(|(key, _)| !found.contains(key)) {
        let wanted = entry_of(key, value);
        mismatches.push(Mismatch {
            key: wanted.key(),
            wanted: Some(wanted),
            found: None,
        });
    }
}

fn order(one: &Mismatch, other: &Mismatch) -> Ordering {
    match (&one.wanted, &other.wanted) {
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), Some(_)) => one.key.cmp(&other.key),
        (None, None) => other.key.cmp(&one.key),
    }
}
