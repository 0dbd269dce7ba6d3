//! Where a dial goes, also while the maps change under it.

use core::cell::{Cell, RefCell};
use std::{collections::HashMap, vec::Vec};

use super::*;
use crate::{
    address,
    affinity::{AffinityKey, AffinityValue, RECORD},
    endpoint::{SetValue, SlotValue},
    frontend::SCOPE_ADDRESS,
    node::NodeAddressKey,
    tables::ServiceTables,
};

/// Maps in memory, with a hook that changes them between two look-ups.
#[derive(Default)]
struct Tables {
    frontend: Option<FrontendValue>,
    node_port: Option<FrontendValue>,
    node_addresses: Vec<NodeAddressKey>,
    clients: RefCell<HashMap<AffinityKey, AffinityValue>>,
    /// Another connection of the client that comes first.
    rival: Cell<Option<u32>>,
    no_memory: bool,
    is_host: bool,
    now: Cell<u64>,
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
    type Client = AffinityKey;

    fn is_node_address(&self, key: &NodeAddressKey) -> bool {
        self.node_addresses.contains(key)
    }
    fn frontend(&self, key: &FrontendKey) -> Option<FrontendValue> {
        if key.scope == SCOPE_ADDRESS {
            self.frontend
        } else {
            self.node_port
        }
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
    fn member(&self, set: u32, endpoint: u32) -> Option<u32> {
        let here = self.members.iter().filter(|(of, _)| *of == set);
        let index = here.clone().position(|(_, member)| *member == endpoint)?;
        u32::try_from(index).ok()
    }
    fn affinity(&self, key: &AffinityKey) -> Option<AffinityValue> {
        self.clients.borrow().get(key).copied()
    }
    fn keep(&self, key: &AffinityKey, value: &AffinityValue, fresh: bool) -> bool {
        let mut clients = self.clients.borrow_mut();
        if let Some(rival) = self.rival.take() {
            clients.insert(*key, AffinityValue::new(key, rival, self.now.get()));
        }
        if self.no_memory || (fresh && clients.contains_key(key)) {
            return false;
        }
        clients.insert(*key, *value);
        true
    }
    fn release(&self, key: &AffinityKey) {
        self.clients.borrow_mut().remove(key);
    }
    fn touch(&self, key: &AffinityKey, now: u64) {
        self.clients.borrow_mut().get_mut(key).unwrap().last_used = now;
    }
    fn now(&self) -> u64 {
        self.now.get()
    }
    fn random(&self) -> u32 {
        self.random.get()
    }
}

impl Dialler for Tables {
    fn client(&self) -> u64 {
        7
    }
    fn is_host(&self) -> bool {
        self.is_host
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
        scope: SCOPE_ADDRESS,
    }
}

fn frontend(cluster_set: u32, local_set: u32, flags: u32) -> FrontendValue {
    FrontendValue {
        service: 1,
        cluster_set,
        local_set,
        flags,
        affinity: 0,
        check: 0,
    }
    .sealed(&key())
}

fn endpoint(number: u32) -> Endpoint {
    Endpoint {
        number,
        port: 8080,
        flags: 0,
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

/// `tables` with an affinity of ten seconds.
fn sticky() -> Tables {
    let mut tables = tables();
    let value = FrontendValue {
        affinity: 10,
        ..tables.frontend.unwrap()
    };
    tables.frontend = Some(value.sealed(&key()));
    tables
}

fn number(route: Route) -> Option<u32> {
    match route {
        Route::Endpoint(endpoint) => Some(endpoint.number),
        _ => None,
    }
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_client_keeps_its_endpoint_for_as_long_as_it_comes_back() {
    let tables = sticky();
    let dial = |random: u32| {
        tables.random.set(random);
        number(route(&tables, &key(), None))
    };
    assert_eq!(dial(u32::MAX), Some(11));
    // Each connection counts, also one that comes at the last moment.
    for _ in 0..3 {
        tables.now.set(tables.now.get() + 10 * SECOND);
        assert_eq!(dial(0), Some(11));
    }
    tables.now.set(tables.now.get() + 10 * SECOND + 1);
    assert_eq!(dial(0), Some(10), "too late");
    assert_eq!(dial(u32::MAX), Some(10), "the new one is kept");
}

#[test]
fn a_client_gets_another_endpoint_when_its_own_leaves_the_set() {
    let mut tables = sticky();
    tables.random.set(u32::MAX);
    assert_eq!(number(route(&tables, &key(), None)), Some(11));
    tables.members.retain(|member| *member != (2, 11));
    tables.sets.insert(2, SetValue::new(2, 1));
    assert_eq!(number(route(&tables, &key(), None)), Some(10));
}

#[test]
fn of_two_connections_at_once_both_go_where_the_first_does() {
    let tables = sticky();
    tables.rival.set(Some(11));
    assert_eq!(number(route(&tables, &key(), None)), Some(11));
    assert_eq!(tables.looked_again.get(), 1);
}

#[test]
fn what_is_kept_for_another_client_or_half_written_is_not_used() {
    let tables = sticky();
    let own = AffinityKey {
        client: 7,
        service: 1,
        claim: RECORD,
    };
    for other in [
        AffinityKey { client: 8, ..own },
        AffinityKey { service: 2, ..own },
    ] {
        let value = AffinityValue::new(&other, 11, 0);
        tables.clients.borrow_mut().insert(own, value);
        assert_eq!(route(&tables, &key(), None), Route::Refused, "{other:?}");
    }
}

#[test]
fn a_node_port_is_found_on_the_addresses_of_the_node_only() {
    let mut tables = tables();
    let of_node = key().of_node_port();
    tables.node_port = tables.frontend.take().map(|value| value.sealed(&of_node));
    assert_eq!(route(&tables, &key(), None), Route::Untouched);
    tables
        .node_addresses
        .push(node::as_dialled(&key().address).0);
    assert_eq!(number(route(&tables, &key(), None)), Some(10));
    // The value of another key, as if the element had been given away.
    tables.node_port = tables.node_port.map(|value| value.sealed(&key()));
    assert_eq!(route(&tables, &key(), None), Route::Refused);
    assert_eq!(tables.gave_up.get(), 1);
}

#[test]
fn a_frontend_of_the_very_address_comes_before_a_node_port() {
    let mut tables = tables();
    tables
        .node_addresses
        .push(node::as_dialled(&key().address).0);
    tables.node_port = Some(frontend(0, 0, 0));
    assert_eq!(number(route(&tables, &key(), None)), Some(10));
}

#[test]
fn a_frontend_for_the_packet_path_is_left_alone() {
    let mut tables = tables();
    tables.frontend = Some(frontend(2, 0, ENDPOINTS_EXIST | LEFT_ALONE));
    assert_eq!(route(&tables, &key(), None), Route::Untouched);
}

#[test]
fn without_memory_to_keep_it_a_client_is_served_all_the_same() {
    let tables = Tables {
        no_memory: true,
        ..sticky()
    };
    assert_eq!(number(route(&tables, &key(), None)), Some(10));
    assert_eq!(tables.gave_up.get(), 0);
}

#[test]
fn loopback_is_the_nodes_for_the_node_only() {
    let mut tables = tables();
    let dialled = FrontendKey {
        address: address::from_ip("127.0.0.5".parse().unwrap()),
        ..key()
    };
    let of_node = dialled.of_node_port();
    tables.node_port = tables.frontend.take().map(|value| value.sealed(&of_node));
    tables
        .node_addresses
        .push(node::as_dialled(&dialled.address).0);
    assert_eq!(route(&tables, &dialled, None), Route::Untouched, "a pod");
    tables.is_host = true;
    assert_eq!(number(route(&tables, &dialled, None)), Some(10));
}
