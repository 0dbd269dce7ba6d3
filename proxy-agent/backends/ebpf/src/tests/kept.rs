//! Endpoints on this node that see clients outside, also where these would be masqueraded: what the maps
//! say of it, and what a change costs.

use std::{collections::BTreeSet, sync::Arc};

use proxy_common::{
    endpoint::{ON_NODE, SlotValue},
    frontend::{MASQUERADED, MASQUERADED_ELSEWHERE, OUTSIDE_TO_CLUSTER, OUTSIDE_TO_LOCAL, RANGED},
    socket,
};
use proxy_model::{
    Frontend, FrontendKind, NodeState, ServiceState, SourceRanges, TrafficPolicy, oracle::Detector,
};

use super::{
    super::{
        encode::{self, Leaves, Masqueraded},
        entry::{Entry, Key, ServiceMaps as _},
        memory_maps::MemoryMaps,
        render,
        tables::Tables,
    },
    fixtures::*,
};

const CLUSTER: TrafficPolicy = TrafficPolicy::Cluster;
const LOCAL: TrafficPolicy = TrafficPolicy::Local;

/// A Service with these policies, and with a load balancer's IP that has source ranges.
fn balanced(internal: TrafficPolicy, external: TrafficPolicy) -> ServiceState {
    let endpoints = BTreeSet::from([1, 2, 3]);
    let mut service = service(1, &endpoints, Some(&endpoints));
    service.cluster_endpoints = service.local_endpoints.clone();
    service.frontends.push(Frontend {
        kind: FrontendKind::LoadBalancerIp,
        address: Some([198, 51, 100, 1].into()),
        port: 80,
    });
    (service.internal_policy, service.external_policy) = (internal, external);
    service.source_ranges = Some(Arc::new(SourceRanges {
        ranges: vec!["203.0.113.0/24".parse().unwrap()],
        own_address: false,
    }));
    service
}

#[test]
fn flags_say_what_programs_on_devices_lead_where() {
    const ALL: u32 = OUTSIDE_TO_LOCAL | OUTSIDE_TO_CLUSTER | MASQUERADED | MASQUERADED_ELSEWHERE;
    const ELSEWHERE: u32 = OUTSIDE_TO_CLUSTER | MASQUERADED_ELSEWHERE;
    const HERE_TOO: u32 = OUTSIDE_TO_CLUSTER | MASQUERADED;
    for (internal, external, (cluster_ips, only_elsewhere), expected) in [
        (
            CLUSTER,
            CLUSTER,
            (false, false),
            [OUTSIDE_TO_CLUSTER, HERE_TOO],
        ),
        (CLUSTER, LOCAL, (true, false), [HERE_TOO, OUTSIDE_TO_LOCAL]),
        (
            LOCAL,
            LOCAL,
            (true, false),
            [OUTSIDE_TO_LOCAL | MASQUERADED, OUTSIDE_TO_LOCAL],
        ),
        (
            CLUSTER,
            CLUSTER,
            (false, true),
            [OUTSIDE_TO_CLUSTER, ELSEWHERE],
        ),
        (CLUSTER, CLUSTER, (true, true), [ELSEWHERE, ELSEWHERE]),
        (
            CLUSTER,
            LOCAL,
            (false, true),
            [OUTSIDE_TO_CLUSTER, OUTSIDE_TO_LOCAL],
        ),
        (LOCAL, CLUSTER, (true, true), [OUTSIDE_TO_LOCAL, ELSEWHERE]),
    ] {
        let masqueraded = Masqueraded {
            cluster_ips: [cluster_ips, false],
            only_elsewhere,
        };
        let leaves = Leaves {
            masqueraded,
            ..Leaves::default()
        };
        let state = balanced(internal, external);
        let name = key(1);
        let frontends: Vec<_> = encode::frontends(&name, &state, socket::TCP, leaves).collect();
        let flags: Vec<_> = frontends.iter().map(|one| one.flags & ALL).collect();
        assert_eq!(flags, expected, "{internal:?} {external:?} {leaves:?}");
        assert!(frontends[1].flags & RANGED != 0);
        assert_eq!(encode::ranges(1, &state, &frontends).len(), 1);
    }
}

/// The last bytes of endpoints of which the slots say that they are on this node.
fn here(maps: &MemoryMaps) -> Vec<u8> {
    let slots = maps.entries.values().filter_map(|entry| match entry {
        Entry::Slot(_, value) if value.flags == ON_NODE => Some(value.address[15]),
        _ => None,
    });
    slots.collect()
}

#[test]
fn an_endpoint_that_turns_out_to_be_here_or_elsewhere_is_one_write_in_each_set() {
    let mut programmer = resume(MemoryMaps::default(), ROOM);
    for (shift, expected) in [(0, [3, 3]), (2, [1, 1]), (1, [2, 2])] {
        let state = placed(balanced(CLUSTER, LOCAL), shift);
        programmer.upsert(&key(1), &state).unwrap();
        if shift != 0 {
            // One that is here no more, and one that is.
            assert_eq!(programmer.take_writes(), 4);
        }
        programmer.take_writes();
        assert_eq!(here(programmer.maps()), expected);
        programmer.upsert(&key(1), &state).unwrap();
        assert_eq!(programmer.take_writes(), 0, "nothing changed");
        // An agent that starts here knows it.
        let mut next = resume(programmer.maps().clone(), ROOM);
        assert_eq!(next.take_writes(), 0);
        next.upsert(&key(1), &state).unwrap();
        assert_eq!(next.take_writes(), 0);
    }
    // The last slot moves into the place of one that is gone.
    let mut fewer = placed(balanced(CLUSTER, LOCAL), 0);
    let left: Arc<[_]> = fewer.cluster_endpoints.unwrap()[1..].into();
    (fewer.cluster_endpoints, fewer.local_endpoints) = (Some(Arc::clone(&left)), Some(left));
    programmer.upsert(&key(1), &fewer).unwrap();
    assert_eq!(here(programmer.maps()), [3, 3]);
}

#[test]
fn a_slot_that_says_it_of_the_wrong_endpoint_is_mended() {
    let mut state = NodeState::default();
    let service = placed(balanced(CLUSTER, LOCAL), 0);
    state.services.insert(key(1), Arc::new(service));
    let maps = Shared::default();
    let mut tables = Tables::new(maps.clone(), ROOM);
    tables.sync(&state, &state.as_change_set()).unwrap();
    let slots: Vec<_> = maps.0.borrow().entries.values().copied().collect();
    for entry in slots {
        let Entry::Slot(slot, value) = entry else {
            continue;
        };
        let mut endpoint = value.endpoint();
        endpoint.flags ^= ON_NODE;
        let wrong = SlotValue::new(slot.set, &endpoint);
        maps.0.borrow_mut().put(&Entry::Slot(slot, wrong)).unwrap();
        // An agent that starts with such maps believes them, and then sees the state.
        for tables in [&tables, &Tables::new(maps.clone(), ROOM)] {
            let told = tables.differences(&state).unwrap();
            assert_eq!(told.len(), 1, "{told:?}");
            assert_eq!(told[0].service, Some(key(1)));
        }
        let told = tables.repair(&state).unwrap().differences;
        assert_ne!(told[0].wanted, told[0].found, "{told:?}");
        assert_eq!(
            maps.0.borrow().entries.get(&Key::Slot(slot)),
            Some(&Entry::Slot(slot, value))
        );
    }
}

#[test]
fn an_agent_that_is_told_otherwise_changes_frontends_alone() {
    let mut state = NodeState::default();
    let service = placed(balanced(CLUSTER, CLUSTER), 0);
    state.services.insert(key(1), Arc::new(service));
    state.traffic.detector = Detector::BridgeInterface("cbr0".into());
    let maps = Shared::default();
    let mut counts = Vec::new();
    for keeps in [false, true, true, false, false] {
        let mut tables = Tables::new(maps.clone(), ROOM);
        tables.keep_clients(keeps);
        let outcome = tables.sync(&state, &state.as_change_set()).unwrap();
        counts.push(outcome.writes);
        assert_eq!(tables.differences(&state).unwrap(), []);
    }
    assert_eq!(counts[1..], [2, 0, 2, 0]);
}

#[test]
fn what_would_be_programmed_has_the_ranges_too() {
    let mut state = NodeState::default();
    state
        .services
        .insert(key(1), Arc::new(balanced(CLUSTER, CLUSTER)));
    for keeps in [false, true] {
        let text = render(&state, keeps, true);
        let ranges = "\nRANGES service 1 203.0.113.0/24 admitted\n";
        assert!(text.contains(ranges), "{text}");
    }
}
