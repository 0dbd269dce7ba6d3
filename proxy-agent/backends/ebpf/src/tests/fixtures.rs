//! States, and what the kernel programs' own decision makes of maps in memory.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
    sync::Arc,
};

use proptest::prelude::*;
use proxy_common::{
    address,
    affinity::{AffinityKey, AffinityValue},
    counters::Event,
    endpoint::{MemberKey, SetKey, SetValue, SlotKey, SlotValue},
    frontend::{FrontendKey, FrontendValue},
    node::NodeAddressKey,
    socket::{self, Route},
    tables::{Dialler, ServiceTables},
};
use proxy_model::{
    Endpoint, Frontend, FrontendKind, IpFamily, NodeState, ObjectName, Protocol, ServicePortKey,
    ServiceState, SourceRanges, TrafficPolicy,
    oracle::{self, Packet, Path, Verdict},
};

use super::super::{
    capacity::Capacity,
    entry::{Entries, Entry, Key, MapError, ServiceMaps},
    memory_maps::MemoryMaps,
    program::Programmer,
};

/// Maps in memory that a test reaches too.
#[derive(Clone, Default)]
pub struct Shared(pub Rc<RefCell<MemoryMaps>>);

impl ServiceMaps for Shared {
    fn put(&mut self, entry: &Entry) -> Result<(), MapError> {
        self.0.borrow_mut().put(entry)
    }
    fn remove(&mut self, key: &Key) -> Result<(), MapError> {
        self.0.borrow_mut().remove(key)
    }
    fn entries(&self) -> Result<Entries, MapError> {
        self.0.borrow().entries()
    }
    fn reserved_numbers(&self) -> Result<u32, MapError> {
        self.0.borrow().reserved_numbers()
    }
    fn reserve_numbers(&mut self, end: u32) -> Result<(), MapError> {
        self.0.borrow_mut().reserve_numbers(end)
    }
}

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
    type Client = AffinityKey;

    fn frontend(&self, key: &FrontendKey) -> Option<FrontendValue> {
        read!(self, Frontend, *key)
    }
    fn set(&self, set: u32) -> Option<SetValue> {
        read!(self, Set, SetKey { set })
    }
    fn slot(&self, key: &SlotKey) -> Option<SlotValue> {
        read!(self, Slot, *key)
    }
    fn is_node_address(&self, key: &NodeAddressKey) -> bool {
        self.maps.entries.contains_key(&Key::NodeAddress(*key))
    }
    fn member(&self, set: u32, endpoint: u32) -> Option<u32> {
        read!(self, Member, MemberKey { set, endpoint }).map(|value| value.index)
    }
    fn affinity(&self, _: &AffinityKey) -> Option<AffinityValue> {
        None
    }
    fn keep(&self, _: &AffinityKey, _: &AffinityValue, _: bool) -> bool {
        true
    }
    fn release(&self, _: &AffinityKey) {}
    fn touch(&self, _: &AffinityKey, _: u64) {}
    fn now(&self) -> u64 {
        0
    }
    fn random(&self) -> u32 {
        self.random
    }
}

impl Dialler for View<'_> {
    fn client(&self) -> u64 {
        1
    }
    fn is_host(&self) -> bool {
        true
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

/// What a Service port leads to by one of its sets.
pub fn outcome_of(service: &ServiceState, set: Option<&[Endpoint]>) -> Outcome {
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

/// What the oracle says of a local socket that dials `key`.
fn verdict(state: &NodeState, key: &FrontendKey) -> Verdict {
    let destination = SocketAddr::new(address::to_ip(key.address), key.port);
    let packet = Packet {
        source: Ipv4Addr::LOCALHOST.into(),
        destination,
        protocol: Protocol::Tcp,
        interface: None,
    };
    oracle::verdict(state, &packet, Path::Socket)
}

/// Which Service port `state` gives what is dialled.
pub fn owner(state: &NodeState, key: &FrontendKey) -> Option<ServicePortKey> {
    verdict(state, key).service
}

/// What `state` wants for a client that dials `key`.
pub fn wanted(state: &NodeState, key: &FrontendKey) -> Outcome {
    let verdict = verdict(state, key);
    match verdict.outcome {
        oracle::Outcome::Forward => {
            Outcome::OneOf(verdict.targets.iter().map(|one| one.address).collect())
        }
        oracle::Outcome::Reject => Outcome::Refused,
        oracle::Outcome::Drop => Outcome::Unreachable,
        oracle::Outcome::Pass => Outcome::Untouched,
    }
}

pub const ROOM: Capacity = Capacity {
    services: 100,
    frontends: 100,
    sets: 200,
    slots: 1000,
    members: 1000,
    ranges: 100,
    node_addresses: 10,
};

pub fn resume<M: ServiceMaps>(maps: M, capacity: Capacity) -> Programmer<M> {
    let mut programmer = Programmer::new(maps, capacity);
    programmer.adopt().unwrap();
    programmer
}

/// As the backend does a whole sync: upserts, then removals.
pub fn program<M: ServiceMaps>(programmer: &mut Programmer<M>, state: &NodeState) {
    programmer
        .remove_node_addresses(&state.node_port_addresses)
        .unwrap();
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
    programmer
        .add_node_addresses(&state.node_port_addresses)
        .unwrap();
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
        .map(|n| Endpoint::at(SocketAddr::from(([10, 244, 0, *n], 8080))))
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

/// What a Service of a random state has besides its ClusterIP.
#[derive(Debug, Clone, Copy)]
pub struct Outside {
    policy: TrafficPolicy,
    node_port: bool,
    balanced: bool,
    /// Which of [`RANGES`] may come, if not all.
    ranges: [bool; 3],
    own_address: bool,
}

/// Of clients, ordered; the last one is a part of another.
const RANGES: [&str; 3] = ["198.18.0.0/15", "203.0.113.0/24", "203.0.113.128/25"];

fn outside() -> impl Strategy<Value = Outside> {
    (any::<[bool; 5]>(), any::<[bool; 3]>()).prop_map(|(any, ranges)| {
        let [is_cluster, node_port, balanced, ranged, own_address] = any;
        Outside {
            policy: if is_cluster {
                TrafficPolicy::Cluster
            } else {
                TrafficPolicy::Local
            },
            node_port,
            balanced,
            ranges: ranges.map(|one| one && ranged),
            own_address,
        }
    })
}

/// With a cluster set, and with external policy Local also with a local one.
fn with_outside(mut service: ServiceState, frontend: u8, outside: Outside) -> ServiceState {
    let mut add = |kind, address, port| {
        service.frontends.push(Frontend {
            kind,
            address,
            port,
        });
    };
    if outside.balanced {
        let address = [198, 51, 100, frontend].into();
        add(FrontendKind::LoadBalancerIp, Some(address), 80);
    }
    if outside.node_port {
        add(FrontendKind::NodePort, None, 30000 + u16::from(frontend));
    }
    if outside.balanced || outside.node_port {
        let (cluster, local) = (&service.cluster_endpoints, &service.local_endpoints);
        let any = cluster.clone().or(local.clone());
        service.cluster_endpoints.clone_from(&any);
        service.external_policy = outside.policy;
        if outside.policy == TrafficPolicy::Local {
            service.local_endpoints = service.local_endpoints.or(any);
        }
    }
    let ranges = RANGES.iter().zip(outside.ranges);
    let ranges: Vec<_> = ranges
        .filter(|(_, chosen)| outside.balanced && *chosen)
        .map(|(range, _)| range.parse().unwrap())
        .collect();
    if !ranges.is_empty() {
        service.source_ranges = Some(Arc::new(SourceRanges {
            ranges,
            own_address: outside.own_address,
        }));
    }
    service
}

/// The same with other places: of three endpoints in a row one is on this node, one on another, and of one
/// nobody knows.
pub fn placed(mut service: ServiceState, shift: u8) -> ServiceState {
    let place = |endpoint: &Endpoint| Endpoint {
        local: match (address::from_ip(endpoint.address.ip())[15] + shift) % 3 {
            0 => Some(true),
            1 => Some(false),
            _ => None,
        },
        ..*endpoint
    };
    for set in [&mut service.cluster_endpoints, &mut service.local_endpoints] {
        *set = set.as_deref().map(|set| set.iter().map(place).collect());
    }
    service
}

/// A state of up to four Services with distinct frontends out of five.
pub fn states() -> impl Strategy<Value = NodeState> {
    let set = || prop::collection::btree_set(1u8..9, 0..5);
    let one = (
        set(),
        prop::option::of(set()),
        prop::option::weighted(0.7, outside()),
    );
    (
        prop::collection::vec((one, any::<bool>(), 0..3u8), 4),
        Just([1u8, 2, 3, 4, 5]).prop_shuffle(),
        prop::sample::subsequence(NODE_ADDRESSES.to_vec(), 0..=2),
    )
        .prop_map(|(services, frontends, addresses)| {
            let mut state = NodeState {
                node_port_addresses: addresses
                    .iter()
                    .map(|address| address.parse().unwrap())
                    .collect(),
                ..NodeState::default()
            };
            for (n, ((cluster, local, outside), present, shift)) in (0u8..).zip(&services) {
                if *present {
                    let frontend = frontends[usize::from(n)];
                    let mut state_of = service(frontend, cluster, local.as_ref());
                    if let Some(outside) = outside {
                        state_of = with_outside(state_of, frontend, *outside);
                    }
                    let state_of = placed(state_of, *shift);
                    state.services.insert(key(n), Arc::new(state_of));
                }
            }
            state
        })
}

/// A state in which one of two Services has the first load-balancer IP, most often the first.
pub fn ranged_states() -> impl Strategy<Value = NodeState> {
    let set = prop::collection::btree_set(1u8..5, 0..3);
    let holder = prop_oneof![3 => Just(0u8), 1 => Just(1)];
    (holder, outside(), set, 0..3u8).prop_map(|(holder, outside, endpoints, shift)| {
        let balanced = true;
        let outside = Outside {
            balanced,
            ..outside
        };
        let service = with_outside(service(1, &endpoints, None), 1, outside);
        let mut state = NodeState::default();
        let service = placed(service, shift);
        state.services.insert(key(holder), Arc::new(service));
        state
    })
}

/// Where NodePorts may answer, ordered.
const NODE_ADDRESSES: [&str; 2] = ["127.0.0.1", "192.0.2.1"];

/// Everything that clients may dial: ClusterIPs first, then load-balancer IPs and NodePorts on
/// addresses that are the node's in some states and in none.
pub fn dialled() -> impl Iterator<Item = FrontendKey> {
    let key = |address: [u8; 4], port: u16| {
        let words = address::to_words(&address::from_ip(address.into()));
        FrontendKey::new(words, port, socket::TCP)
    };
    let cluster = (1u8..=5).map(move |n| key([10, 96, 0, n], 80));
    let balanced = (1u8..=5).map(move |n| key([198, 51, 100, n], 80));
    let node = [
        [127, 0, 0, 1],
        [127, 9, 9, 9],
        [192, 0, 2, 1],
        [192, 0, 2, 2],
    ];
    let ports =
        (1u16..=5).flat_map(move |n| node.into_iter().map(move |address| key(address, 30000 + n)));
    cluster.chain(balanced).chain(ports)
}

/// The last bytes of the endpoints behind the first frontend.
pub fn reached(programmer: &Programmer<MemoryMaps>) -> Vec<u8> {
    match outcome(programmer.maps(), &dialled().next().unwrap()) {
        Outcome::OneOf(endpoints) => endpoints
            .iter()
            .map(|at| address::from_ip(at.ip())[15])
            .collect(),
        other => panic!("{other:?}"),
    }
}
