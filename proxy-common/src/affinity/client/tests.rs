//! Connections of one client at the same time: in whatever order their programs reach the map, all
//! are led to one endpoint, and that one is kept.

use std::{
    collections::HashMap,
    sync::{Condvar, Mutex, MutexGuard},
    thread,
    vec::Vec,
};

use super::*;
use crate::{
    counters::Event,
    endpoint::{Endpoint, SetValue, SlotValue},
    frontend::{ENDPOINTS_EXIST, FrontendKey, FrontendValue, SCOPE_ADDRESS},
    node::NodeAddressKey,
    socket::{Route, TCP, route},
};

/// AFFINITY, which as many programs as there are CPUs reach in an order that is chosen.
struct Map {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    entries: HashMap<AffinityKey, AffinityValue>,
    /// Of each CPU, what its program is at.
    at: Vec<At>,
    /// Who comes next, once every program waits or has ended.
    turn: Option<usize>,
    /// What is chosen, of how many, at each step; beyond the end the first.
    order: Vec<(usize, usize)>,
    step: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Work,
    Map,
    End,
}

impl Map {
    fn new(cpus: usize, entry: Option<(AffinityKey, AffinityValue)>, order: Order) -> Self {
        Self {
            state: Mutex::new(State {
                entries: entry.into_iter().collect(),
                at: std::vec![At::Work; cpus],
                order,
                ..State::default()
            }),
            changed: Condvar::new(),
        }
    }

    /// What a program on `cpu` does with the map, when its turn comes.
    fn reach<R>(&self, cpu: usize, act: impl FnOnce(&mut Entries) -> R) -> R {
        let mut state = self.now_at(cpu, At::Map);
        while state.turn != Some(cpu) {
            state = self.changed.wait(state).unwrap();
        }
        state.turn = None;
        state.at[cpu] = At::Work;
        act(&mut state.entries)
    }

    fn now_at(&self, cpu: usize, at: At) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap();
        state.at[cpu] = at;
        if !state.at.contains(&At::Work) {
            let all = state.at.iter().enumerate();
            let waiting: Vec<_> = all.filter(|(_, at)| **at == At::Map).collect();
            let (step, count) = (state.step, waiting.len());
            let index = state.order.get(step).map_or(0, |(index, _)| *index) % count.max(1);
            let turn = waiting.get(index).map(|(cpu, _)| *cpu);
            match state.order.get_mut(step) {
                Some(choice) => *choice = (index, count),
                None => state.order.push((index, count)),
            }
            state.step += 1;
            state.turn = turn;
            self.changed.notify_all();
        }
        state
    }
}

type Entries = HashMap<AffinityKey, AffinityValue>;
type Order = Vec<(usize, usize)>;

/// What the program on one CPU sees. The Service maps do not change.
struct Cpu<'a> {
    map: &'a Map,
    number: usize,
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
        };
        Some(SlotValue::new(key.set, &endpoint))
    }
    fn member(&self, _: u32, endpoint: u32) -> Option<u32> {
        endpoint.checked_sub(10)
    }
    fn affinity(&self, key: &AffinityKey) -> Option<AffinityValue> {
        self.map
            .reach(self.number, |entries| entries.get(key).copied())
    }
    fn keep(&self, key: &AffinityKey, value: &AffinityValue, fresh: bool) -> bool {
        self.map.reach(self.number, |entries| {
            if fresh && entries.contains_key(key) {
                return false;
            }
            entries.insert(*key, *value);
            true
        })
    }
    fn release(&self, key: &AffinityKey) {
        self.map.reach(self.number, |entries| entries.remove(key));
    }
    fn touch(&self, key: &AffinityKey, now: u64) {
        self.map.reach(self.number, |entries| {
            if let Some(value) = entries.get_mut(key) {
                value.last_used = now;
            }
        });
    }
    fn client(&self) -> u64 {
        key().client
    }
    fn is_host(&self) -> bool {
        false
    }
    fn now(&self) -> u64 {
        // None reads the clock at the same moment as another.
        NOW + self.number as u64
    }
    fn random(&self) -> u32 {
        // Each CPU chooses another endpoint.
        (self.number as u32) * (u32::MAX / ENDPOINTS) + 1
    }
    fn count(&self, _: Event) {}
}

/// Connections on `cpus` CPUs at once, in `order`. All are led to the same endpoint, which is kept,
/// and nothing else is left in the map. Returns the order, as it came to.
fn dial(cpus: usize, entry: Option<(AffinityKey, AffinityValue)>, order: Order) -> Order {
    let map = Map::new(cpus, entry, order);
    let routes: Vec<Route> = thread::scope(|scope| {
        let programs: Vec<_> = (0..cpus)
            .map(|number| {
                let map = &map;
                scope.spawn(move || {
                    let route = route(&Cpu { map, number }, &dialled(), None);
                    drop(map.now_at(number, At::End));
                    route
                })
            })
            .collect();
        let routes = programs.into_iter().map(|program| program.join().unwrap());
        routes.collect()
    });
    let state = map.state.into_inner().unwrap();
    let order = state.order;
    let Route::Endpoint(first) = routes[0] else {
        panic!("{order:?}: {routes:?}");
    };
    for route in &routes {
        assert_eq!(*route, routes[0], "{order:?}: {routes:?}");
    }
    let kept: Vec<_> = state.entries.into_iter().collect();
    let [(of, value)] = kept[..] else {
        panic!("{order:?}: {kept:?} is left");
    };
    assert_eq!((of, value.endpoint), (key(), first.number), "{order:?}");
    order
}

/// Every order in which two programs can reach the map.
fn every_order_of_two(entry: Option<(AffinityKey, AffinityValue)>) -> usize {
    let (mut order, mut orders) = (Order::new(), 0);
    loop {
        order = dial(2, entry, order);
        orders += 1;
        // The next one: another choice at the last step that has one left.
        while let Some((index, count)) = order.pop() {
            if index + 1 < count {
                order.push((index + 1, count));
                break;
            }
        }
        if order.is_empty() {
            return orders;
        }
    }
}

fn record(endpoint: u32, last_used: u64) -> (AffinityKey, AffinityValue) {
    (key(), AffinityValue::new(&key(), endpoint, last_used))
}

#[test]
fn two_connections_agree_in_every_order() {
    for (what, entry, least) in [
        ("a new client", None, 5),
        ("one that was away for too long", Some(record(10, 0)), 50),
        ("one whose endpoint is gone", Some(record(GONE, NOW)), 50),
        ("one that is known", Some(record(11, NOW)), 2),
    ] {
        let orders = every_order_of_two(entry);
        assert!(orders >= least, "{what}: {orders} orders");
    }
}

#[test]
fn three_connections_agree_in_many_orders() {
    for seed in 1..1500_u64 {
        let mixed = |step: u64| (seed << 8 | step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let order = (0..40).map(|step| ((mixed(step) >> 40) as usize % 6, 6));
        dial(3, Some(record(10, 0)), order.collect());
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
        let map = Map::new(1, Some(record(GONE, NOW)), Order::new());
        map.state.lock().unwrap().entries.insert(claimed, left);
        let cpu = Cpu {
            map: &map,
            number: 0,
        };
        let Route::Endpoint(led) = route(&cpu, &dialled(), None) else {
            panic!("refused");
        };
        let entries = map.state.into_inner().unwrap().entries;
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
    let map = Map::new(1, Some(record(GONE, NOW)), Order::new());
    let theirs = AffinityValue::new(&claimed, GONE, NOW);
    map.state.lock().unwrap().entries.insert(claimed, theirs);
    let cpu = Cpu {
        map: &map,
        number: 0,
    };
    assert!(matches!(
        route(&cpu, &dialled(), None),
        Route::Endpoint(endpoint) if endpoint.number == 10
    ));
    // It is theirs to write and to remove.
    assert_eq!(map.state.into_inner().unwrap().entries.len(), 2);
}
