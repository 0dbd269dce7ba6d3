//! States, and what the kernel programs' own decision makes of maps in memory.

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

use super::super::{
    capacity::Capacity,
    encode,
    entry::{Entry, Key, ServiceMaps},
    memory_maps::MemoryMaps,
    program::Programmer,
};

/// Maps in memory as a kernel program reads them.
pub struct View<'a> {
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
pub enum Outcome {
    Untouched,
    Refused,
    Unreachable,
    OneOf(BTreeSet<SocketAddr>),
}

/// What the kernel programs would do with every choice of the random number.
pub fn outcome(maps: &MemoryMaps, key: &FrontendKey) -> Outcome {
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
pub fn outcome_of(service: &ServiceState) -> Outcome {
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
pub fn owners(state: &NodeState) -> BTreeMap<FrontendKey, ServicePortKey> {
    let mut owners = BTreeMap::new();
    for (key, service) in &state.services {
        let protocol = encode::protocol_number(key.protocol).unwrap();
        for frontend in encode::frontend_keys(service, protocol) {
            owners.insert(frontend, key.clone());
        }
    }
    owners
}

/// What `state` wants for a frontend.
pub fn wanted(state: &NodeState, key: &FrontendKey) -> Outcome {
    owners(state).get(key).map_or(Outcome::Untouched, |owner| {
        outcome_of(&state.services[owner])
    })
}

pub const ROOM: Capacity = Capacity {
    services: 100,
    frontends: 100,
    sets: 200,
    slots: 1000,
    members: 1000,
};

pub fn resume<M: ServiceMaps>(maps: M, capacity: Capacity) -> Programmer<M> {
    let mut programmer = Programmer::new(maps, capacity);
    programmer.adopt().unwrap();
    programmer
}

/// As the backend does a whole sync: upserts, then removals.
pub fn program<M: ServiceMaps>(programmer: &mut Programmer<M>, state: &NodeState) {
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

pub fn key(name: u8) -> ServicePortKey {
    ServicePortKey {
        service: ObjectName::new("shop", format!("s{name}")),
        port: "http".into(),
        protocol: Protocol::Tcp,
        family: IpFamily::V4,
    }
}

pub fn endpoints(numbers: &BTreeSet<u8>) -> Arc<[Endpoint]> {
    numbers
        .iter()
        .map(|n| Endpoint {
            address: SocketAddr::from(([10, 244, 0, *n], 8080)),
        })
        .collect()
}

pub fn service(frontend: u8, cluster: &BTreeSet<u8>, local: Option<&BTreeSet<u8>>) -> ServiceState {
    ServiceState {
        frontends: vec![Frontend {
            kind: FrontendKind::ClusterIp,
            address: Some([10, 96, 0, frontend].into()),
            port: 80,
        }],
        cluster_endpoints: local.is_none().then(|| endpoints(cluster)),
        local_endpoints: local.map(endpoints),
        has_any_endpoints: !cluster.is_empty(),
        internal_policy: local.map_or(TrafficPolicy::Cluster, |_| TrafficPolicy::Local),
        external_policy: TrafficPolicy::Cluster,
        affinity: None,
        source_ranges: None,
    }
}

/// A state of up to four Services with distinct frontends out of five.
pub fn states() -> impl Strategy<Value = NodeState> {
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

pub fn all_frontends() -> impl Iterator<Item = FrontendKey> {
    (1u8..=5).flat_map(|n| {
        let service = service(n, &BTreeSet::new(), None);
        encode::frontend_keys(&service, socket::TCP).collect::<Vec<_>>()
    })
}

/// The last bytes of the endpoints behind the first frontend.
pub fn reached(programmer: &Programmer<MemoryMaps>) -> Vec<u8> {
    match outcome(programmer.maps(), &all_frontends().next().unwrap()) {
        Outcome::OneOf(endpoints) => endpoints
            .iter()
            .map(|at| address::from_ip(at.ip())[15])
            .collect(),
        other => panic!("{other:?}"),
    }
}
