//! Between any two writes the kernel programs' own decision must lead somewhere right, and an
//! agent that dies there must be able to continue.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use proptest::prelude::*;
use proxy_common::{
    address,
    counters::Event,
    endpoint::{MemberKey, SetKey, SetValue, SlotKey, SlotValue},
    frontend::{FrontendKey, FrontendValue},
    socket::{self, Route, ServiceTables},
};
use proxy_model::{
    Endpoint, Frontend, FrontendKind, IpFamily, NodeState, ObjectName, Protocol, ServicePortKey,
    ServiceState, TrafficPolicy,
};

use super::{
    capacity::Capacity,
    encode,
    entry::{Entries, Entry, Key, MapError, ServiceMaps},
    memory_maps::MemoryMaps,
    program::{ProgramError, Programmer},
    render,
};

/// Maps in memory as a kernel program reads them.
struct View<'a> {
    maps: &'a MemoryMaps,
    random: u32,
    trouble: Cell<bool>,
}

macro_rules! read {
    ($self:ident, $variant:ident, $key:expr) => {
        match $self.maps.entries.get(&Key::$variant($key)) {
            Some(Entry::$variant(_, value)) => Some(*value),
            _ => None,
        }
    };
}

impl ServiceTables for View<'_> {
    fn frontend(&self, key: &FrontendKey) -> Option<FrontendValue> {
        read!(self, Frontend, *key)
    }
    fn set(&self, set: u32) -> Option<SetValue> {
        read!(self, Set, SetKey { set })
    }
    fn slot(&self, key: &SlotKey) -> Option<SlotValue> {
        read!(self, Slot, *key)
    }
    fn is_member(&self, set: u32, endpoint: u32) -> bool {
        self.maps
            .entries
            .contains_key(&Key::Member(MemberKey { set, endpoint }))
    }
    fn random(&self) -> u32 {
        self.random
    }
    fn count(&self, event: Event) {
        // Nothing changes while one decision is made here: nothing may have to be looked up twice.
        if matches!(event, Event::LookedAgain | Event::GaveUp) {
            self.trouble.set(true);
        }
    }
}

/// What a client that dials a frontend may meet.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Untouched,
    Refused,
    Unreachable,
    OneOf(BTreeSet<SocketAddr>),
}

/// What the kernel programs would do with every choice of the random number.
fn outcome(maps: &MemoryMaps, key: &FrontendKey) -> Outcome {
    let mut endpoints = BTreeSet::new();
    for step in 0..16u32 {
        let view = View {
            maps,
            random: step << 28,
            trouble: Cell::new(false),
        };
        let route = socket::route(&view, key, None);
        assert!(!view.trouble.get(), "a torn Service: {key:?}");
        match route {
            Route::Untouched => return Outcome::Untouched,
            Route::Refused => return Outcome::Refused,
            Route::Unreachable => return Outcome::Unreachable,
            Route::Endpoint(to) => {
                endpoints.insert(SocketAddr::new(address::to_ip(to.address), to.port));
            }
        }
    }
    Outcome::OneOf(endpoints)
}

/// What a Service port wants for its frontends.
fn outcome_of(service: &ServiceState) -> Outcome {
    let set = match service.internal_policy {
        TrafficPolicy::Cluster => &service.cluster_endpoints,
        TrafficPolicy::Local => &service.local_endpoints,
    };
    let endpoints: BTreeSet<_> = set
        .iter()
        .flat_map(|s| s.iter())
        .map(|e| e.address)
        .collect();
    if !endpoints.is_empty() {
        Outcome::OneOf(endpoints)
    } else if service.has_any_endpoints {
        Outcome::Unreachable
    } else {
        Outcome::Refused
    }
}

/// Which Service port each frontend belongs to.
fn owners(state: &NodeState) -> BTreeMap<FrontendKey, ServicePortKey> {
    let mut owners = BTreeMap::new();
    for (key, service) in &state.services {
        let protocol = encode::protocol_number(key.protocol).unwrap();
        for frontend in &service.frontends {
            owners.insert(encode::frontend_key(frontend, protocol), key.clone());
        }
    }
    owners
}

/// What `state` wants for a frontend.
fn wanted(state: &NodeState, key: &FrontendKey) -> Outcome {
    owners(state).get(key).map_or(Outcome::Untouched, |owner| {
        outcome_of(&state.services[owner])
    })
}

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

const ROOM: Capacity = Capacity {
    services: 100,
    frontends: 100,
    sets: 200,
    slots: 1000,
    members: 1000,
};

fn resume<M: ServiceMaps>(maps: M, capacity: Capacity) -> Programmer<M> {
    let mut programmer = Programmer::new(maps, capacity);
    programmer.adopt().unwrap();
    programmer
}

/// As the backend does a whole sync: upserts, then removals.
fn program<M: ServiceMaps>(programmer: &mut Programmer<M>, state: &NodeState) {
    for (key, service) in &state.services {
        programmer.upsert(key, service).unwrap();
    }
    programmer.settle().unwrap();
    let gone: Vec<ServicePortKey> = programmer
        .programmed()
        .services
        .keys()
        .filter(|key| !state.services.contains_key(*key))
        .cloned()
        .collect();
    for key in gone {
        programmer.remove(&key).unwrap();
    }
}

fn key(name: u8) -> ServicePortKey {
    ServicePortKey {
        service: ObjectName::new("shop", format!("s{name}")),
        port: "http".into(),
        protocol: Protocol::Tcp,
        family: IpFamily::V4,
    }
}

fn endpoints(numbers: &BTreeSet<u8>) -> Arc<[Endpoint]> {
    numbers
        .iter()
        .map(|n| Endpoint {
            address: SocketAddr::from(([10, 244, 0, *n], 8080)),
        })
        .collect()
}

fn service(frontend: u8, cluster: &BTreeSet<u8>, local: Option<&BTreeSet<u8>>) -> ServiceState {
    ServiceState {
        frontends: vec![Frontend {
            kind: FrontendKind::ClusterIp,
            address: [10, 96, 0, frontend].into(),
            port: 80,
        }],
        cluster_endpoints: local.is_none().then(|| endpoints(cluster)),
        local_endpoints: local.map(endpoints),
        has_any_endpoints: !cluster.is_empty(),
        internal_policy: local.map_or(TrafficPolicy::Cluster, |_| TrafficPolicy::Local),
    }
}

/// A state of up to four Services with distinct frontends out of five.
fn states() -> impl Strategy<Value = NodeState> {
    let set = || prop::collection::btree_set(1u8..9, 0..5);
    let one = (set(), prop::option::of(set()), any::<bool>());
    (
        prop::collection::vec(one, 4),
        Just([1u8, 2, 3, 4, 5]).prop_shuffle(),
    )
        .prop_map(|(services, frontends)| {
            let mut state = NodeState::default();
            for (n, (cluster, local, present)) in (0u8..).zip(&services) {
                if *present {
                    let frontend = frontends[usize::from(n)];
                    let state_of = service(frontend, cluster, local.as_ref());
                    state.services.insert(key(n), Arc::new(state_of));
                }
            }
            state
        })
}

fn all_frontends() -> impl Iterator<Item = FrontendKey> {
    (1u8..=5).map(|n| {
        let frontend = Frontend {
            kind: FrontendKind::ClusterIp,
            address: [10, 96, 0, n].into(),
            port: 80,
        };
        encode::frontend_key(&frontend, socket::TCP)
    })
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
    let owners = [owners(old), owners(new)];
    let holders = owners.iter().filter_map(|owners| owners.get(key));
    let candidates: Vec<Outcome> = holders
        .flat_map(|holder| [old, new].map(|state| state.services.get(holder)))
        .flatten()
        .map(|service| outcome_of(service))
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_write_tears_a_service_and_every_crash_can_be_continued(
        states in prop::collection::vec(states(), 1..4)
    ) {
        let mut programmer = resume(Filmed::default(), ROOM);
        let mut old = NodeState::default();
        for new in &states {
            program(&mut programmer, new);
            let mut maps = programmer.maps().clone();
            for frame in std::mem::take(&mut maps.frames) {
                for key in all_frontends() {
                    let seen = outcome(&frame, &key);
                    prop_assert!(
                        legal_between(&old, new, &key, &seen),
                        "{:?} -> {:?}, but saw {seen:?} at {key:?}",
                        wanted(&old, &key),
                        wanted(new, &key)
                    );
                }
                // The agent dies here and another starts.
                let mut next = resume(Filmed { maps: frame, frames: Vec::new() }, ROOM);
                program(&mut next, new);
                for key in all_frontends() {
                    prop_assert_eq!(outcome(&next.maps().maps, &key), wanted(new, &key));
                }
                let count = next.maps().maps.entries.len();
                prop_assert_eq!(count, resume(maps.maps.clone(), ROOM).maps().entries.len());
            }
            let resumed = resume(maps.maps.clone(), ROOM);
            prop_assert_eq!(&resumed.maps().entries, &maps.maps.entries, "needed no repair");
            old = new.clone();
            programmer = resume(maps, ROOM);
        }
    }
}

#[test]
fn one_endpoint_costs_the_same_writes_in_a_set_of_any_size() {
    let mut costs = BTreeSet::new();
    for size in [2u8, 20, 200] {
        let mut programmer = resume(MemoryMaps::default(), ROOM);
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
fn a_replaced_endpoint_takes_the_slot_of_the_one_that_is_gone() {
    let room = Capacity {
        slots: 2,
        members: 2,
        ..ROOM
    };
    let mut programmer = resume(MemoryMaps::default(), room);
    programmer
        .upsert(&key(1), &service(1, &BTreeSet::from([1, 2]), None))
        .unwrap();
    programmer.take_writes();
    programmer
        .upsert(&key(1), &service(1, &BTreeSet::from([1, 3]), None))
        .unwrap();
    // The old member, the slot, the new member: full maps and all.
    assert_eq!(programmer.take_writes(), 3);
    assert_eq!(reached(&programmer), [1, 3]);
}

#[test]
fn a_service_that_does_not_fit_loses_at_least_what_is_gone() {
    let room = Capacity {
        slots: 2,
        members: 2,
        ..ROOM
    };
    let mut programmer = resume(MemoryMaps::default(), room);
    programmer
        .upsert(&key(1), &service(1, &BTreeSet::from([1, 2]), None))
        .unwrap();
    let wanted = service(1, &BTreeSet::from([2, 3, 4]), None);
    assert!(matches!(
        programmer.upsert(&key(1), &wanted),
        Err(ProgramError::Refused(_))
    ));
    assert_eq!(reached(&programmer), [2, 3]);
    let resumed = resume(programmer.maps().clone(), room);
    assert_eq!(resumed.maps().entries, programmer.maps().entries);
}

/// The last bytes of the endpoints behind the first frontend.
fn reached(programmer: &Programmer<MemoryMaps>) -> Vec<u8> {
    match outcome(programmer.maps(), &all_frontends().next().unwrap()) {
        Outcome::OneOf(endpoints) => endpoints
            .iter()
            .map(|at| address::from_ip(at.ip())[15])
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_map_names_the_limit_and_changes_nothing() {
    let room = Capacity { slots: 3, ..ROOM };
    let mut programmer = resume(MemoryMaps::default(), room);
    let two = BTreeSet::from([1, 2]);
    programmer.upsert(&key(1), &service(1, &two, None)).unwrap();
    let before = programmer.maps().entries.clone();
    for (name, state) in [
        (key(2), service(2, &two, None)),
        (key(1), service(1, &BTreeSet::from([1, 2, 3, 4]), None)),
    ] {
        match programmer.upsert(&name, &state) {
            Err(ProgramError::Refused(reason)) => {
                assert!(
                    reason.contains("SLOTS") && reason.contains("of 3"),
                    "{reason}"
                );
                assert!(reason.contains("--map-size SLOTS="), "{reason}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(programmer.maps().entries, before);
    }
    programmer
        .upsert(&key(2), &service(2, &BTreeSet::from([7]), None))
        .unwrap();
}

#[test]
fn a_frontend_that_was_taken_over_stays_with_its_new_service() {
    let mut programmer = resume(MemoryMaps::default(), ROOM);
    programmer
        .upsert(&key(1), &service(1, &BTreeSet::from([1]), None))
        .unwrap();
    programmer
        .upsert(&key(2), &service(1, &BTreeSet::from([2]), None))
        .unwrap();
    programmer.remove(&key(1)).unwrap();
    let expected = Outcome::OneOf(BTreeSet::from([SocketAddr::from(([10, 244, 0, 2], 8080))]));
    assert_eq!(
        outcome(programmer.maps(), &all_frontends().next().unwrap()),
        expected
    );
}

#[test]
fn foreign_entries_are_removed() {
    let mut maps = MemoryMaps::default();
    let key = all_frontends().next().unwrap();
    let value = FrontendValue {
        service: 9,
        cluster_set: 9,
        local_set: 0,
        flags: 0,
        check: 0,
    }
    .sealed(&key);
    maps.put(&Entry::Frontend(key, value)).unwrap();
    maps.put(&Entry::Slot(
        SlotKey { set: 4, index: 0 },
        encode::slot_value(4, 5, SocketAddr::from(([10, 244, 0, 1], 80))),
    ))
    .unwrap();
    assert!(resume(maps, ROOM).maps().entries.is_empty());
}

#[test]
fn rendering_is_stable_text() {
    let mut state = NodeState::default();
    let local = BTreeSet::from([3]);
    state.services.insert(
        key(1),
        Arc::new(service(1, &BTreeSet::from([1, 3]), Some(&local))),
    );
    let expected = "\
SERVICES 1 shop/s1:http/TCP/IPv4
SLOTS set 2 index 0 endpoint 3 at 10.244.0.3:8080
MEMBERS set 2 endpoint 3 index 0
SETS 2 count 1
FRONTENDS 10.96.0.1:80/TCP service 1 local-set 2 leads-to-local endpoints-exist
";
    assert_eq!(render(&state), expected);
}
