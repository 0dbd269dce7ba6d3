//! Connections of one client at the same time: in whatever order their programs reach the map, all
//! are led to one endpoint, and that one is kept.

use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    hash::{Hash as _, Hasher as _},
    vec::Vec,
};

use super::*;
use crate::{
    affinity::{AffinityKey, CLAIM, RECORD},
    counters::Event,
    endpoint::{Endpoint, SetValue, SlotValue},
    frontend::{ENDPOINTS_EXIST, FrontendKey, FrontendValue, SCOPE_ADDRESS},
    in_memory::interleaved::{self, Order, Shared, Touch},
    node::NodeAddressKey,
    socket::{Route, TCP, route},
    tables::Dialler,
};

/// AFFINITY.
type Entries = HashMap<AffinityKey, AffinityValue>;

/// What the program on one CPU sees. The Service maps do not change.
struct Cpu<'a> {
    map: &'a Shared<Entries>,
    number: usize,
}

impl Cpu<'_> {
    fn reach<R>(&self, key: &AffinityKey, changes: bool, act: impl FnOnce(&mut Entries) -> R) -> R {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let what = hasher.finish();
        self.map.reach(self.number, Touch { what, changes }, act)
    }
}

const NOW: u64 = 100 * SECOND;
const SET: u32 = 2;
/// Endpoints are 10, 11, 12; that of the record before is 9.
const ENDPOINTS: u32 = 3;
const GONE: u32 = 9;

fn key() -> AffinityKey {
    AffinityKey {
        client: 7,
        service: 1,
        claim: RECORD,
    }
}

fn dialled() -> FrontendKey {
    FrontendKey {
        address: [1; 16],
        port: 80,
        protocol: TCP,
        scope: SCOPE_ADDRESS,
    }
}

impl ServiceTables for Cpu<'_> {
    type Client = AffinityKey;

    fn is_node_address(&self, _: &NodeAddressKey) -> bool {
        false
    }
    fn frontend(&self, key: &FrontendKey) -> Option<FrontendValue> {
        let value = FrontendValue {
            service: 1,
            cluster_set: SET,
            local_set: 0,
            flags: ENDPOINTS_EXIST,
            affinity: 10,
            check: 0,
        };
        Some(value.sealed(key))
    }
    fn set(&self, set: u32) -> Option<SetValue> {
        Some(SetValue::new(set, ENDPOINTS))
    }
    fn slot(&self, key: &SlotKey) -> Option<SlotValue> {
        let endpoint = Endpoint {
            number: 10 + key.index,
            address: [0; 16],
            port: 8080,
            flags: 0,
        };
        Some(SlotValue::new(key.set, &endpoint))
    }
    fn member(&self, _: u32, endpoint: u32) -> Option<u32> {
        endpoint.checked_sub(10)
    }
    fn affinity(&self, key: &AffinityKey) -> Option<AffinityValue> {
        self.reach(key, false, |entries| entries.get(key).copied())
    }
    fn keep(&self, key: &AffinityKey, value: &AffinityValue, fresh: bool) -> bool {
        self.reach(key, true, |entries| {
            if fresh && entries.contains_key(key) {
                return false;
            }
            entries.insert(*key, *value);
            true
        })
    }
    fn release(&self, key: &AffinityKey) {
        self.reach(key, true, |entries| entries.remove(key));
    }
    fn touch(&self, key: &AffinityKey, now: u64) {
        self.reach(key, true, |entries| {
            if let Some(value) = entries.get_mut(key) {
                value.last_used = now;
            }
        });
    }
    fn now(&self) -> u64 {
        // None reads the clock at the same moment as another.
        NOW + self.number as u64
    }
    fn random(&self) -> u32 {
        // Each CPU chooses another endpoint.
        (self.number as u32) * (u32::MAX / ENDPOINTS) + 1
    }
}

impl Dialler for Cpu<'_> {
    fn client(&self) -> u64 {
        key().client
    }
    fn is_host(&self) -> bool {
        false
    }
    fn count(&self, _: Event) {}
}

fn program(map: &Shared<Entries>, number: usize) -> Route {
    route(&Cpu { map, number }, &dialled(), None)
}

/// All connections are led to the same endpoint, which is kept, and nothing else is left in the map.
fn agree(entries: Entries, routes: &[Route], order: &Order) {
    let Route::Endpoint(first) = routes[0] else {
        panic!("{order:?}: {routes:?}");
    };
    for route in routes {
        assert_eq!(*route, routes[0], "{order:?}: {routes:?}");
    }
    let kept: Vec<_> = entries.into_iter().collect();
    let [(of, value)] = kept[..] else {
        panic!("{order:?}: {kept:?} is left");
    };
    assert_eq!((of, value.endpoint), (key(), first.number), "{order:?}");
}

fn record(endpoint: u32, last_used: u64) -> (AffinityKey, AffinityValue) {
    (key(), AffinityValue::new(&key(), endpoint, last_used))
}

#[test]
fn two_connections_agree_in_every_order() {
    for (what, entry, least) in [
        ("a new client", None, 3),
        ("one that was away for too long", Some(record(10, 0)), 10),
        ("one whose endpoint is gone", Some(record(GONE, NOW)), 10),
        ("one that is known", Some(record(11, NOW)), 1),
    ] {
        let start = || entry.into_iter().collect();
        let orders = interleaved::every_order(2, start, program, |entries, routes, order| {
            agree(entries, &routes, order);
        });
        assert!(orders >= least, "{what}: {orders} orders");
    }
}

#[test]
fn three_connections_agree_in_many_orders() {
    for seed in 1..1500_u64 {
        let mixed = |step: u64| (seed << 8 | step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let order = (0..40).map(|step| ((mixed(step) >> 40) as usize % 6, 6));
        let start = [record(10, 0)].into_iter().collect();
        let (entries, routes, order) = interleaved::run(start, 3, order.collect(), program);
        agree(entries, &routes, &order);
    }
}

#[test]
fn a_claim_of_a_program_that_never_ended_stops_nobody() {
    let claimed = AffinityKey {
        claim: CLAIM,
        ..key()
    };
    for endpoint in [11, GONE] {
        let left = AffinityValue::new(&claimed, endpoint, NOW - CLAIM_HOLDS - 1);
        let start = [record(GONE, NOW), (claimed, left)].into_iter().collect();
        let map = Shared::new(start, 1, Order::new());
        let cpu = Cpu {
            map: &map,
            number: 0,
        };
        let Route::Endpoint(led) = route(&cpu, &dialled(), None) else {
            panic!("refused");
        };
        let entries = map.into_maps();
        assert_eq!(
            entries.get(&key()).map(|value| value.endpoint),
            Some(led.number)
        );
        assert_eq!(entries.get(&claimed), None);
    }
}

#[test]
fn a_claim_of_an_endpoint_that_this_connection_must_not_use_is_not_followed() {
    let claimed = AffinityKey {
        claim: CLAIM,
        ..key()
    };
    let theirs = AffinityValue::new(&claimed, GONE, NOW);
    let start = [record(GONE, NOW), (claimed, theirs)].into_iter().collect();
    let map = Shared::new(start, 1, Order::new());
    let cpu = Cpu {
        map: &map,
        number: 0,
    };
    assert!(matches!(
        route(&cpu, &dialled(), None),
        Route::Endpoint(endpoint) if endpoint.number == 10
    ));
    // It is theirs to write and to remove.
    assert_eq!(map.into_maps().len(), 2);
}
