//! Entries that somebody else changed: each is told, mended with one write, and nothing else is
//! touched.

use std::{collections::BTreeSet, net::SocketAddr};

use proptest::{prelude::*, sample::Index};
use proxy_common::{
    endpoint::{MemberValue, SetKey, SetValue, SlotKey},
    frontend::FrontendValue,
};
use proxy_model::{DifferenceKind, NodeState};

use super::{
    super::{
        encode,
        entry::{Entry, Key, ServiceMaps},
        memory_maps::MemoryMaps,
        tables::Tables,
    },
    fixtures::*,
};

/// Maps that were brought to `state`, and what knows them.
fn programmed(state: &NodeState) -> (Shared, Tables<Shared>) {
    let maps = Shared::default();
    let mut tables = Tables::new(maps.clone(), ROOM);
    tables.sync(state, &state.as_change_set()).unwrap();
    (maps, tables)
}

/// An entry of the same key with another value.
fn altered(entry: &Entry) -> Entry {
    match *entry {
        Entry::Service(key, mut value) => {
            value.name[0] ^= 1;
            Entry::Service(key, value)
        }
        Entry::Slot(key, mut value) => {
            value.address[15] ^= 1;
            Entry::Slot(key, value)
        }
        Entry::Member(key, value) => {
            let index = value.index + 1;
            Entry::Member(key, MemberValue { index })
        }
        // Whole in itself, but not what was written.
        Entry::Set(key, value) => Entry::Set(key, SetValue::new(key.set, value.count + 1)),
        Entry::Range(key, mut value) => {
            value.service ^= 1;
            Entry::Range(key, value)
        }
        Entry::Frontend(key, mut value) => {
            value.flags ^= 1;
            Entry::Frontend(key, value.sealed(&key))
        }
        Entry::NodeAddress(key, mut value) => {
            value.present = 7;
            Entry::NodeAddress(key, value)
        }
    }
}

/// An entry that no run of ours wrote.
fn foreign(number: u32) -> Entry {
    let key = SetKey {
        set: u32::MAX - number,
    };
    Entry::Set(key, SetValue::new(key.set, number))
}

#[derive(Debug, Clone)]
enum Damage {
    Lost(Index),
    Altered(Index),
    Foreign(u32),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        any::<Index>().prop_map(Damage::Lost),
        any::<Index>().prop_map(Damage::Altered),
        (0u32..50).prop_map(Damage::Foreign),
    ]
}

proptest! {
    #[test]
    fn each_damaged_entry_costs_one_write(
        state in states(),
        damages in prop::collection::vec(damage(), 0..8),
    ) {
        let (maps, mut tables) = programmed(&state);
        let before = maps.0.borrow().entries.clone();
        for damage in &damages {
            let mut maps = maps.0.borrow_mut();
            let chosen = |index: &Index| {
                let keys: Vec<Key> = before.keys().copied().collect();
                (!keys.is_empty()).then(|| *index.get(&keys))
            };
            match damage {
                Damage::Lost(index) => if let Some(key) = chosen(index) {
                    maps.remove(&key).unwrap();
                }
                Damage::Altered(index) => if let Some(key) = chosen(index) {
                    maps.put(&altered(&before[&key])).unwrap();
                }
                Damage::Foreign(number) => maps.put(&foreign(*number)).unwrap(),
            }
        }
        let damaged: BTreeSet<Key> = {
            let now = &maps.0.borrow().entries;
            let keys = before.keys().chain(now.keys());
            keys.filter(|key| before.get(key) != now.get(key)).copied().collect()
        };
        let told = tables.differences(&state).unwrap();
        prop_assert_eq!(told.len(), damaged.len(), "{:#?}", told);
        let repaired = tables.repair(&state).unwrap();
        prop_assert_eq!(&repaired.differences, &told);
        prop_assert_eq!(repaired.outcome.writes, damaged.len());
        prop_assert_eq!(&maps.0.borrow().entries, &before);
        prop_assert_eq!(tables.repair(&state).unwrap().outcome.writes, 0);
    }

    #[test]
    fn a_state_that_the_maps_do_not_hold_is_told_and_brought_about(
        (old, new) in (states(), states())
    ) {
        let (maps, mut tables) = programmed(&old);
        let told = tables.differences(&new).unwrap();
        let same = old.services == new.services
            && old.node_port_addresses == new.node_port_addresses;
        prop_assert_eq!(told.is_empty(), same, "{:#?}", told);
        let repaired = tables.repair(&new).unwrap();
        prop_assert_eq!(&repaired.differences, &told);
        for key in dialled() {
            prop_assert_eq!(outcome(&maps.0.borrow(), &key), wanted(&new, &key));
        }
        prop_assert_eq!(tables.differences(&new).unwrap(), vec![]);
    }
}

#[test]
fn a_difference_names_the_entry_the_service_and_both_sides() {
    let mut state = NodeState::default();
    let two = BTreeSet::from([1, 3]);
    state
        .services
        .insert(key(1), std::sync::Arc::new(service(1, &two, None)));
    let (maps, tables) = programmed(&state);
    let entries = maps.0.borrow().entries.clone();
    let frontend = entries.values().next_back().unwrap();
    maps.0.borrow_mut().put(&altered(frontend)).unwrap();
    let [told] = &*tables.differences(&state).unwrap() else {
        panic!("one entry was changed");
    };
    assert_eq!(
        told.to_string(),
        "FRONTENDS 10.96.0.1:80/TCP: changed, wanted service 1 cluster-set 2 endpoints-exist, \
         found service 1 cluster-set 2 leads-to-local endpoints-exist (shop/s1:http/TCP/IPv4)"
    );
    let slot = entries
        .values()
        .find(|entry| matches!(entry, Entry::Slot(..)));
    maps.0.borrow_mut().put(frontend).unwrap();
    maps.0.borrow_mut().put(&altered(slot.unwrap())).unwrap();
    let told = tables.differences(&state).unwrap()[0].to_string();
    assert!(
        told.contains("found endpoint 3 at 10.244.0.0:8080 with a wrong check"),
        "{told}"
    );
    maps.0.borrow_mut().reserve_numbers(7).unwrap();
    let told = tables.differences(&state).unwrap();
    assert_eq!(told[1].object, "NUMBERS 0");
    assert_eq!(told[1].kind, DifferenceKind::Changed);
}

#[test]
fn foreign_entries_are_removed_on_start() {
    let mut maps = MemoryMaps::default();
    let key = dialled().next().unwrap();
    let value = FrontendValue {
        service: 9,
        cluster_set: 9,
        local_set: 0,
        flags: 0,
        affinity: 0,
        check: 0,
    }
    .sealed(&key);
    maps.put(&Entry::Frontend(key, value)).unwrap();
    maps.put(&Entry::Slot(
        SlotKey { set: 4, index: 0 },
        encode::slot_value(4, 5, SocketAddr::from(([10, 244, 0, 1], 80)), true),
    ))
    .unwrap();
    assert!(resume(maps, ROOM).maps().entries.is_empty());
}
