//! Source ranges in the maps: which there are, in which form, and what does not fit.

use std::{collections::BTreeSet, sync::Arc};

use ipnet::IpNet;
use proxy_common::{
    address,
    frontend::{LEFT_ALONE, RANGED},
    ranges::{RangeKey, RangeValue},
};
use proxy_model::{Frontend, FrontendKind, NodeState, ServiceState, SourceRanges, TrafficPolicy};

use super::{
    super::{
        capacity::Capacity,
        describe, encode,
        entry::{Entry, Key, ServiceMaps as _},
        memory_maps::MemoryMaps,
        program::{ProgramError, Refusal},
        render,
    },
    fixtures::*,
};

const LOCAL: TrafficPolicy = TrafficPolicy::Local;

/// A Service with a load balancer's IP and these ranges.
fn ranged(policy: TrafficPolicy, ranges: &[&str]) -> ServiceState {
    let mut service = service(1, &BTreeSet::from([1]), None);
    service.frontends.push(Frontend {
        kind: FrontendKind::LoadBalancerIp,
        address: Some([198, 51, 100, 1].into()),
        port: 80,
    });
    service.external_policy = policy;
    service.local_endpoints = (policy == LOCAL).then(|| endpoints(&BTreeSet::from([1])));
    service.source_ranges = (!ranges.is_empty()).then(|| {
        Arc::new(SourceRanges {
            ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(),
            own_address: false,
        })
    });
    service
}

/// The ranges that the maps hold.
fn held(maps: &MemoryMaps) -> Vec<String> {
    let ranges = maps.entries.keys().filter_map(|key| match key {
        Key::Range(key) => Some(encode::range(key).unwrap().to_string()),
        _ => None,
    });
    ranges.collect()
}

#[test]
fn ranges_are_written_whatever_the_policy_and_go_with_the_service() {
    let ranges = ["198.18.0.0/15", "203.0.113.0/24"];
    for (policy, ranges, expected) in [
        (LOCAL, &ranges[..], &ranges[..]),
        (LOCAL, &[], &[]),
        (TrafficPolicy::Cluster, &ranges[..], &ranges[..]),
    ] {
        let mut programmer = resume(MemoryMaps::default(), ROOM);
        programmer.upsert(&key(1), &ranged(policy, ranges)).unwrap();
        assert_eq!(held(programmer.maps()), expected);
        // All go with the Service.
        programmer.remove(&key(1)).unwrap();
        assert!(programmer.maps().entries.is_empty());
    }
}

#[test]
fn a_range_that_comes_or_goes_is_one_write() {
    let mut programmer = resume(MemoryMaps::default(), ROOM);
    let mut cost = |ranges: &[&str]| {
        programmer.upsert(&key(1), &ranged(LOCAL, ranges)).unwrap();
        programmer.take_writes()
    };
    cost(&["198.18.0.0/15"]);
    assert_eq!(cost(&["198.18.0.0/15", "203.0.113.0/24"]), 1);
    assert_eq!(cost(&["203.0.113.0/24"]), 1);
    assert_eq!(cost(&["203.0.113.0/24"]), 0);
    // The frontend, then the range.
    assert_eq!(cost(&[]), 2);
}

#[test]
fn a_range_is_read_back_as_it_was_written() {
    for text in [
        "0.0.0.0/1",
        "203.0.113.0/24",
        "203.0.113.9/32",
        "2001:db8::/32",
        "2001:db8::1/128",
        "::/1",
        "::ffff:0:0/95",
    ] {
        let net: IpNet = text.parse().unwrap();
        let mut service = ranged(LOCAL, &[text]);
        service.source_ranges = Some(Arc::new(SourceRanges {
            ranges: vec![net],
            own_address: false,
        }));
        let mut programmer = resume(MemoryMaps::default(), ROOM);
        programmer.upsert(&key(1), &service).unwrap();
        assert_eq!(held(programmer.maps()), [net.trunc().to_string()]);
        let again = resume(programmer.maps().clone(), ROOM);
        assert_eq!(again.maps().entries, programmer.maps().entries);
    }
}

#[test]
fn ranges_of_nobody_and_senseless_ones_are_removed_on_start() {
    let mut programmer = resume(MemoryMaps::default(), ROOM);
    programmer
        .upsert(&key(1), &ranged(LOCAL, &["203.0.113.0/24"]))
        .unwrap();
    let whole = programmer.maps().clone();
    let mut maps = whole.clone();
    let client = address::from_ip([192, 0, 2, 1].into());
    let mut short = RangeKey::new(1, client, 128);
    short.prefix = 31;
    for (key, value) in [
        (RangeKey::new(77, client, 128), RangeValue::new(77)),
        (RangeKey::new(1, client, 128), RangeValue::new(2)),
        (short, RangeValue::new(1)),
    ] {
        maps.put(&Entry::Range(key, value)).unwrap();
    }
    assert_eq!(resume(maps, ROOM).maps().entries, whole.entries);
}

#[test]
fn an_entry_in_words_names_service_and_range() {
    let mut state = NodeState::default();
    let service = Arc::new(ranged(LOCAL, &["203.0.113.0/24"]));
    state.services.insert(key(1), service);
    let text = render(&state, false, true);
    assert!(
        text.contains("\nRANGES service 1 203.0.113.0/24 admitted\n"),
        "{text}"
    );
    let odd = RangeKey {
        prefix: 7,
        service: 1,
        address: address::from_ip([192, 0, 2, 1].into()),
    };
    assert_eq!(
        describe::object(&Key::Range(odd)),
        "RANGES service 1 192.0.2.1 with 7 bits"
    );
}

#[test]
fn what_does_not_fit_lets_nobody_in_whom_the_service_does_not_admit_any_more() {
    let room = Capacity { ranges: 1, ..ROOM };
    let two = ["192.0.2.0/24", "198.18.0.0/15"];
    for before in [&["203.0.113.0/24"][..], &["198.18.0.0/15"], &[]] {
        let mut programmer = resume(MemoryMaps::default(), room);
        programmer.upsert(&key(1), &ranged(LOCAL, before)).unwrap();
        let wanted = ranged(LOCAL, &two);
        match programmer.upsert(&key(1), &wanted) {
            Err(ProgramError::Refused(Refusal::Full(full))) => assert_eq!(full.map, "RANGES"),
            other => panic!("{other:?}"),
        }
        let kept: Vec<_> = before.iter().filter(|one| two.contains(one)).collect();
        assert_eq!(
            held(programmer.maps()),
            kept.into_iter().copied().collect::<Vec<_>>()
        );
        let frontends = programmer.programmed().frontends.iter();
        let balanced = address::from_ip([198, 51, 100, 1].into());
        let mut flags = frontends
            .filter(|(key, _)| key.address == balanced)
            .map(|(_, value)| value.flags);
        let restricted = RANGED | LEFT_ALONE;
        assert!(flags.all(|flags| flags & restricted == restricted));
        let again = resume(programmer.maps().clone(), room);
        assert_eq!(again.maps().entries, programmer.maps().entries);
        programmer
            .upsert(&key(1), &ranged(LOCAL, &two[1..]))
            .unwrap();
        assert_eq!(held(programmer.maps()), two[1..], "it fits again");
    }
}
