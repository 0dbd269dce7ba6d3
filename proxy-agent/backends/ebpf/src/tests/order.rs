//! Between any two writes the kernel programs' own decision must lead somewhere right, and an
//! agent that dies there must be able to continue.

use std::{collections::BTreeSet, net::SocketAddr};

use proptest::prelude::*;
use proxy_common::frontend::FrontendKey;
use proxy_model::{NodeState, ServicePortKey};

use super::{
    super::{
        encode::{Leaves, Masqueraded},
        entry::{Entries, Entry, Key, MapError, ServiceMaps},
        memory_maps::MemoryMaps,
        program::Programmer,
    },
    fixtures::{self, *},
    outside,
};

/// Maps that remember what they were after every write.
#[derive(Default, Clone)]
struct Filmed {
    maps: MemoryMaps,
    frames: Vec<MemoryMaps>,
}

impl ServiceMaps for Filmed {
    fn put(&mut self, entry: &Entry) -> Result<(), MapError> {
        self.maps.put(entry)?;
        self.frames.push(self.maps.clone());
        Ok(())
    }
    fn remove(&mut self, key: &Key) -> Result<(), MapError> {
        assert!(
            self.maps.entries.contains_key(key),
            "removed what was not there: {key:?}"
        );
        self.maps.remove(key)?;
        self.frames.push(self.maps.clone());
        Ok(())
    }
    fn entries(&self) -> Result<Entries, MapError> {
        self.maps.entries()
    }
    fn reserved_numbers(&self) -> Result<u32, MapError> {
        self.maps.reserved_numbers()
    }
    fn reserve_numbers(&mut self, end: u32) -> Result<(), MapError> {
        self.maps.reserve_numbers(end)
    }
}

/// Whether a client may meet `seen` at `key` while `old` becomes `new`: what a Service that holds
/// the frontend before or after wants, before or after. A Service whose address and endpoints
/// change together may show its new endpoints at its old address, but nothing of any other.
fn legal_between(old: &NodeState, new: &NodeState, key: &FrontendKey, seen: &Outcome) -> bool {
    if *seen == Outcome::Untouched {
        return [old, new]
            .iter()
            .any(|state| wanted(state, key) == Outcome::Untouched);
    }
    let holders = [old, new].map(|state| owner(state, key));
    let candidates: Vec<Outcome> = holders
        .iter()
        .flatten()
        .flat_map(|holder| [old, new].map(|state| led_to(state, holder, key)))
        .flatten()
        .collect();
    match seen {
        Outcome::OneOf(seen) => seen.iter().all(|at| {
            candidates
                .iter()
                .any(|one| matches!(one, Outcome::OneOf(set) if set.contains(at)))
        }),
        // A flag and a count are two writes: between two refusals either may show.
        _ => candidates
            .iter()
            .any(|one| !matches!(one, Outcome::OneOf(_))),
    }
}

/// What `holder` may lead clients to that dial `key`: while it gives the frontend up, to any of the
/// sets that it still has.
fn led_to(state: &NodeState, holder: &ServicePortKey, key: &FrontendKey) -> Vec<Outcome> {
    let Some(service) = state.services.get(holder) else {
        return Vec::new();
    };
    let wanted = wanted(state, key);
    // One that is left alone is served, or the other way round, a write before its sets change.
    if owner(state, key).as_ref() == Some(holder) && wanted != Outcome::Untouched {
        return vec![wanted];
    }
    let sets = [&service.cluster_endpoints, &service.local_endpoints];
    sets.into_iter()
        .flatten()
        .map(|set| outcome_of(service, Some(set)))
        .collect()
}

/// Continues with these maps. `keeps`: endpoints on this node see clients outside.
fn resume<M: ServiceMaps>(maps: M, keeps: bool) -> Programmer<M> {
    let mut programmer = fixtures::resume(maps, ROOM);
    programmer.leave(Leaves {
        masqueraded: Masqueraded::of(&NodeState::default(), keeps),
        ..Leaves::default()
    });
    programmer
}

/// Brings maps to one state after another, and looks at them after each write.
fn watch(states: &[NodeState], keeps: bool) -> Result<(), TestCaseError> {
    let mut programmer = resume(Filmed::default(), keeps);
    let mut old = NodeState::default();
    for new in states {
        program(&mut programmer, new);
        let mut maps = programmer.maps().clone();
        for frame in std::mem::take(&mut maps.frames) {
            for key in dialled() {
                let seen = outcome(&frame, &key);
                prop_assert!(
                    legal_between(&old, new, &key, &seen),
                    "{:?} -> {:?}, but saw {seen:?} at {key:?}",
                    wanted(&old, &key),
                    wanted(new, &key)
                );
            }
            for dial in outside::dials() {
                let led = outside::led(&frame, &dial);
                prop_assert!(
                    outside::is_legal_between([&old, new], keeps, &dial, led),
                    "{dial:?} is led to {led:?}"
                );
            }
            // The agent dies here and another starts.
            let mut next = resume(
                Filmed {
                    maps: frame,
                    frames: Vec::new(),
                },
                keeps,
            );
            program(&mut next, new);
            for key in dialled() {
                prop_assert_eq!(outcome(&next.maps().maps, &key), wanted(new, &key));
            }
            for dial in outside::dials() {
                let led = outside::led(&next.maps().maps, &dial);
                prop_assert!(
                    outside::is_wanted(new, keeps, &dial, led),
                    "{dial:?}: {led:?}"
                );
            }
            let count = next.maps().maps.entries.len();
            prop_assert_eq!(count, resume(maps.maps.clone(), keeps).maps().entries.len());
        }
        let resumed = resume(maps.maps.clone(), keeps);
        prop_assert_eq!(
            &resumed.maps().entries,
            &maps.maps.entries,
            "needed no repair"
        );
        old = new.clone();
        programmer = resume(maps, keeps);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_write_tears_a_service_and_every_crash_can_be_continued(
        states in prop::collection::vec(states(), 1..4),
        keeps: bool,
    ) {
        watch(&states, keeps)?;
    }

    #[test]
    fn no_write_tears_source_ranges(
        states in prop::collection::vec(ranged_states(), 2..4),
        keeps: bool,
    ) {
        watch(&states, keeps)?;
    }
}

#[test]
fn one_endpoint_costs_the_same_writes_in_a_set_of_any_size() {
    let mut costs = BTreeSet::new();
    for size in [2u8, 20, 200] {
        let mut programmer = resume(MemoryMaps::default(), false);
        let all: BTreeSet<u8> = (0..size).collect();
        let mut fewer = all.clone();
        fewer.remove(&(size / 2));
        programmer
            .upsert(&key(1), &service(1, &fewer, None))
            .unwrap();
        programmer.take_writes();
        programmer.upsert(&key(1), &service(1, &all, None)).unwrap();
        let added = programmer.take_writes();
        programmer
            .upsert(&key(1), &service(1, &fewer, None))
            .unwrap();
        costs.insert((added, programmer.take_writes()));
        programmer
            .upsert(&key(1), &service(1, &fewer, None))
            .unwrap();
        assert_eq!(programmer.take_writes(), 0, "nothing changed");
    }
    // Added: slot, member, count. Removed: member, count, slot (the last slot was the one).
    assert_eq!(costs.into_iter().collect::<Vec<_>>(), [(3, 3)]);
}

#[test]
fn a_frontend_that_was_taken_over_stays_with_its_new_service() {
    let mut programmer = resume(MemoryMaps::default(), false);
    programmer
        .upsert(&key(1), &service(1, &BTreeSet::from([1]), None))
        .unwrap();
    programmer
        .upsert(&key(2), &service(1, &BTreeSet::from([2]), None))
        .unwrap();
    programmer.remove(&key(1)).unwrap();
    let expected = Outcome::OneOf(BTreeSet::from([SocketAddr::from(([10, 244, 0, 2], 8080))]));
    assert_eq!(
        outcome(programmer.maps(), &dialled().next().unwrap()),
        expected
    );
}
