//! Where a dial goes, also while the maps change under it.

use core::cell::Cell;
use std::{collections::HashMap, vec::Vec};

use super::*;
use crate::{address, frontend::SCOPE_ANY};

/// Maps in memory, with a hook that changes them between two look-ups.
#[derive(Default)]
struct Tables {
    frontend: Option<FrontendValue>,
    sets: HashMap<u32, SetValue>,
    slots: HashMap<SlotKey, SlotValue>,
    members: Vec<(u32, u32)>,
    random: Cell<u32>,
    looked_again: Cell<u32>,
    gave_up: Cell<u32>,
    /// Slot look-ups that find nothing before the first that does.
    slot_missing_for: Cell<u32>,
}

impl ServiceTables for Tables {
    fn frontend(&self, _: &FrontendKey) -> Option<FrontendValue> {
        self.frontend
    }
    fn set(&self, set: u32) -> Option<SetValue> {
        self.sets.get(&set).copied()
    }
    fn slot(&self, key: &SlotKey) -> Option<SlotValue> {
        if let Some(left) = self.slot_missing_for.get().checked_sub(1) {
            self.slot_missing_for.set(left);
            return None;
        }
        self.slots.get(key).copied()
    }
    fn is_member(&self, set: u32, endpoint: u32) -> bool {
        self.members.contains(&(set, endpoint))
    }
    fn random(&self) -> u32 {
        self.random.get()
    }
    fn count(&self, event: Event) {
        match event {
            Event::LookedAgain => self.looked_again.set(self.looked_again.get() + 1),
            Event::GaveUp => self.gave_up.set(self.gave_up.get() + 1),
            _ => {}
        }
    }
}

fn key() -> FrontendKey {
    FrontendKey {
        address: address::from_ip("10.96.0.1".parse().unwrap()),
        port: 80,
        protocol: TCP,
        scope: SCOPE_ANY,
    }
}

fn frontend(cluster_set: u32, local_set: u32, flags: u32) -> FrontendValue {
    FrontendValue {
        service: 1,
        cluster_set,
        local_set,
        flags,
        check: 0,
    }
    .sealed(&key())
}

fn endpoint(number: u32) -> Endpoint {
    Endpoint {
        number,
        port: 8080,
        address: [0; 16],
    }
}

fn slot(set: u32, number: u32) -> SlotValue {
    SlotValue::new(set, &endpoint(number))
}

/// Service 1 with cluster set 2 of endpoints 10 and 11.
fn tables() -> Tables {
    let mut tables = Tables {
        frontend: Some(frontend(2, 0, ENDPOINTS_EXIST)),
        ..Tables::default()
    };
    tables.sets.insert(2, SetValue::new(2, 2));
    for (index, id) in [(0, 10), (1, 11)] {
        tables.slots.insert(SlotKey { set: 2, index }, slot(2, id));
        tables.members.push((2, id));
    }
    tables
}

#[test]
fn an_address_that_is_no_frontend_is_untouched() {
    assert_eq!(route(&Tables::default(), &key(), None), Route::Untouched);
}

#[test]
fn the_random_number_chooses_the_endpoint() {
    let tables = tables();
    assert_eq!(route(&tables, &key(), None), Route::Endpoint(endpoint(10)));
    tables.random.set(u32::MAX);
    assert_eq!(route(&tables, &key(), None), Route::Endpoint(endpoint(11)));
}

#[test]
fn a_kept_endpoint_stays_until_it_leaves_the_set() {
    let mut tables = tables();
    assert_eq!(
        route(&tables, &key(), Some(endpoint(11))),
        Route::Endpoint(endpoint(11))
    );
    tables.members.retain(|member| *member != (2, 11));
    assert_eq!(
        route(&tables, &key(), Some(endpoint(11))),
        Route::Endpoint(endpoint(10))
    );
}

#[test]
fn an_empty_set_is_refused_or_unreachable() {
    let mut tables = tables();
    tables.sets.insert(2, SetValue::new(2, 0));
    assert_eq!(route(&tables, &key(), None), Route::Unreachable);
    tables.frontend = Some(frontend(2, 0, 0));
    assert_eq!(route(&tables, &key(), None), Route::Refused);
}

#[test]
fn a_local_frontend_leads_to_the_local_set() {
    let mut tables = tables();
    let flags = ENDPOINTS_EXIST | crate::frontend::LEADS_TO_LOCAL;
    tables.frontend = Some(frontend(2, 3, flags));
    tables.sets.insert(3, SetValue::new(3, 1));
    tables
        .slots
        .insert(SlotKey { set: 3, index: 0 }, slot(3, 11));
    assert_eq!(route(&tables, &key(), None), Route::Endpoint(endpoint(11)));
}

#[test]
fn what_vanished_for_a_moment_is_looked_up_again() {
    let tables = tables();
    tables.slot_missing_for.set(2);
    assert_eq!(route(&tables, &key(), None), Route::Endpoint(endpoint(10)));
    assert_eq!((tables.looked_again.get(), tables.gave_up.get()), (2, 0));

    tables.slot_missing_for.set(3);
    assert_eq!(route(&tables, &key(), None), Route::Refused);
    assert_eq!(tables.gave_up.get(), 1);
}

/// Puts another key's value behind a look-up.
type Mutation = fn(&mut Tables);

#[test]
fn a_recycled_element_never_leads_to_another_service() {
    let mutations: [(&str, Mutation); 3] = [
        ("frontend", |t| {
            t.frontend.as_mut().unwrap().cluster_set ^= 1;
        }),
        ("set", |t| t.sets.get_mut(&2).unwrap().count ^= 1),
        ("slot", |t| {
            t.slots.values_mut().for_each(|s| s.endpoint ^= 1);
        }),
    ];
    for (name, mutate) in mutations {
        let mut tables = tables();
        mutate(&mut tables);
        assert_eq!(route(&tables, &key(), None), Route::Refused, "{name}");
        assert_eq!(tables.gave_up.get(), 1, "{name}");
    }
}

#[test]
fn mptcp_is_tcp_and_other_protocols_are_no_service() {
    assert_eq!(service_protocol(6), Some(TCP));
    assert_eq!(service_protocol(MPTCP), Some(TCP));
    assert_eq!(service_protocol(17), Some(UDP));
    assert_eq!(service_protocol(132), None);
}
