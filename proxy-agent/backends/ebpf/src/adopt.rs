//! Reads back what an earlier run left in the Service maps. Pure: entries in; what they mean, and
//! the writes that make them consistent, out.
//!
//! An agent can die between any two writes. What it left always serves correctly (see `program`),
//! but may hold entries that nothing points to, or an endpoint in two slots.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use proxy_common::{
    address,
    endpoint::{SlotKey, SlotValue},
    frontend::{FrontendKey, FrontendValue},
    ranges::RangeKey,
};
use proxy_model::ServicePortKey;

use super::{
    compare::{Expected, Mismatch},
    encode,
    entry::Entries,
    programmed::{Programmed, ProgrammedService, ProgrammedSet},
};

/// What the maps mean, and what is wrong with them.
#[derive(Debug)]
pub struct Adopted {
    /// What the maps hold once the mismatches are mended.
    pub programmed: Programmed,
    /// What is inconsistent, in the order in which to mend it.
    pub mismatches: Vec<Mismatch>,
}

/// The entries of each map, by key.
#[derive(Default)]
struct Found {
    services: BTreeMap<u32, ServicePortKey>,
    frontends: HashMap<FrontendKey, FrontendValue>,
    counts: HashMap<u32, u32>,
    slots: HashMap<SlotKey, SlotValue>,
    ranges: HashMap<u32, BTreeSet<RangeKey>>,
}

/// Makes sense of the entries.
pub fn adopt(entries: &Entries) -> Adopted {
    let found = Found::sort(entries);
    let mut programmed = Programmed::default();
    let sets = found.sets_by_service();
    for (number, key) in &found.services {
        // A name that occurs twice cannot come from a run of ours; the first number wins, the
        // other is removed with all that belongs to it.
        let sets = sets.get(number).copied().unwrap_or_default();
        programmed
            .services
            .entry(key.clone())
            .or_insert_with(|| found.service(*number, sets));
    }
    let known: HashMap<u32, &ProgrammedService> = programmed
        .services
        .values()
        .map(|service| (service.number, service))
        .collect();
    for (key, value) in &found.frontends {
        let whole = known.get(&value.service).is_some_and(|service| {
            leads_somewhere(value.cluster_set, service.cluster.as_ref())
                && leads_somewhere(value.local_set, service.local.as_ref())
        });
        if whole {
            programmed.frontends.insert(*key, *value);
        }
    }
    drop(known);
    let addresses = entries.node_addresses.iter();
    programmed.node_addresses = addresses
        .map(|(key, _)| address::to_ip(key.address))
        .collect();
    Found::share_out_frontends(&mut programmed);
    let expected = Expected::new(&programmed);
    let (used, mismatches) = (expected.usage(), expected.mismatches(entries));
    programmed.used = used;
    Adopted {
        programmed,
        mismatches,
    }
}

/// Whether a set that a frontend names is the one its Service has.
fn leads_somewhere(named: u32, set: Option<&ProgrammedSet>) -> bool {
    named == 0 || set.is_some_and(|set| set.number == named)
}

impl Found {
    /// Takes what is whole; members follow from the slots.
    fn sort(entries: &Entries) -> Self {
        let mut found = Self::default();
        for (key, value) in &entries.services {
            if let Some(name) = encode::service_key(*key, value) {
                found.services.insert(key.service, name);
            }
        }
        let frontends = entries.frontends.iter();
        let frontends = frontends.filter(|(key, value)| value.holds_for(key));
        found.frontends.extend(frontends.copied());
        let sets = entries.sets.iter();
        let sets = sets.filter(|(key, value)| value.holds_for(key.set));
        found
            .counts
            .extend(sets.map(|(key, value)| (key.set, value.count)));
        let slots = entries.slots.iter();
        let slots = slots.filter(|(key, value)| value.holds_for(key.set));
        found.slots.extend(slots.copied());
        for (key, value) in &entries.ranges {
            let whole = key.length().is_some() && *key == key.canonical();
            if whole && value.holds_for(key.service) {
                found.ranges.entry(key.service).or_default().insert(*key);
            }
        }
        found
    }

    /// Cluster set and local set of each Service port, as its frontends name them.
    fn sets_by_service(&self) -> HashMap<u32, (u32, u32)> {
        let mut sets: HashMap<u32, (u32, u32)> = HashMap::new();
        for value in self.frontends.values() {
            let (cluster, local) = sets.entry(value.service).or_default();
            *cluster = (*cluster).max(value.cluster_set);
            *local = (*local).max(value.local_set);
        }
        sets
    }

    fn service(&self, number: u32, (cluster, local): (u32, u32)) -> ProgrammedService {
        let mut service = ProgrammedService {
            number,
            ranges: self.ranges.get(&number).cloned().unwrap_or_default(),
            ..ProgrammedService::default()
        };
        service.cluster = self.set(cluster, &mut service);
        service.local = self.set(local, &mut service);
        service
    }

    fn set(&self, number: u32, service: &mut ProgrammedService) -> Option<ProgrammedSet> {
        let count = *self.counts.get(&number)?;
        let mut set = ProgrammedSet::new(number);
        let mut seen = HashSet::new();
        for index in 0..count {
            let Some(slot) = self.slots.get(&SlotKey { set: number, index }) else {
                continue;
            };
            let address = encode::slot_address(slot);
            if seen.insert(address) {
                set.push(address, encode::is_here(slot));
                service.endpoints.insert(address, slot.endpoint);
            }
        }
        Some(set)
    }

    fn share_out_frontends(programmed: &mut Programmed) {
        let mut by_service: HashMap<u32, Vec<FrontendKey>> = HashMap::new();
        for (key, value) in &programmed.frontends {
            by_service.entry(value.service).or_default().push(*key);
        }
        for service in programmed.services.values_mut() {
            service.frontends = by_service.remove(&service.number).unwrap_or_default();
        }
    }
}
