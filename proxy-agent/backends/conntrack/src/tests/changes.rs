//! Which changes make flows stale, which frontends go with them, and what is caught up after a
//! clean that failed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use proxy_model::{ChangeSet, NodeState, Protocol, ServiceState};

use super::{
    super::{Cleaned, Cleaner, ConntrackError, gone, needs_cleaning},
    assert_stale, key, node, serving,
};

const VIP: &[&str] = &["ClusterIp 10.96.0.10:53"];

/// What is true of the change from one Service to another: whether to clean, and what is gone.
fn of(before: Option<ServiceState>, now: Option<ServiceState>) -> (bool, String) {
    let state =
        |service: Option<ServiceState>| node(&service.map_or_else(Vec::new, |s| vec![("dns", s)]));
    between(&state(before), &state(now))
}

fn between(before: &NodeState, now: &NodeState) -> (bool, String) {
    let change = before.changes_to(now);
    let whole = now.as_change_set();
    let needed = needs_cleaning(before, now, &change);
    let went = gone(before, now, &change);
    // A backend may be told the whole instead.
    assert_eq!(needs_cleaning(before, now, &whole), needed);
    assert_eq!(gone(before, now, &whole), went);
    let went: Vec<String> = went.iter().map(ToString::to_string).collect();
    (needed, went.join(" "))
}

#[test]
fn what_makes_flows_stale() {
    let none = || Some(serving(VIP, ""));
    let one = || Some(serving(VIP, "10.244.0.1:53"));
    let two = || Some(serving(VIP, "10.244.0.1:53 10.244.0.2:53"));
    let untouched = |needed| (needed, String::new());
    assert_eq!(of(one(), one()), untouched(false));
    assert_eq!(of(one(), two()), untouched(false), "one more");
    assert_eq!(of(two(), one()), untouched(true), "one less");
    assert_eq!(of(none(), one()), untouched(true), "the first");
    assert_eq!(of(one(), none()), untouched(true), "the last");
    assert_eq!(of(None, one()), untouched(true), "who sent there before");
    assert_eq!(of(one(), None), (true, "10.96.0.10:53".to_owned()));
    let moved = serving(&["ClusterIp 10.96.0.10:54"], "10.244.0.1:53");
    assert_eq!(of(one(), Some(moved)), (true, "10.96.0.10:53".to_owned()));
}

#[test]
fn endpoints_of_a_set_that_no_frontend_uses_make_nothing_stale() {
    let with_local = |local: &str| {
        let mut service = serving(VIP, "10.244.0.1:53");
        service.local_endpoints = Some(super::endpoints(local));
        Some(service)
    };
    let change = of(with_local("10.244.0.1:53"), with_local(""));
    assert_eq!(change, (false, String::new()));
}

#[test]
fn other_protocols_make_nothing_stale() {
    let mut before = node(&[]);
    let tcp = key("web", Protocol::Tcp, proxy_model::IpFamily::V4);
    before
        .services
        .insert(tcp, Arc::new(serving(VIP, "10.244.0.1:53")));
    assert_eq!(between(&before, &node(&[])), (false, String::new()));
}

#[test]
fn a_node_port_goes_from_each_address_and_with_each_address() {
    let with = node(&[("dns", serving(&["NodePort 30053"], "10.244.0.1:53"))]);
    let without = node(&[("dns", serving(&[], "10.244.0.1:53"))]);
    assert_eq!(
        between(&with, &without),
        (true, "192.0.2.1:30053".to_owned())
    );

    let mut elsewhere = with.clone();
    elsewhere.node_port_addresses = ["192.0.2.2".parse().unwrap()].into();
    assert_eq!(
        between(&with, &elsewhere),
        (true, "192.0.2.1:30053".to_owned())
    );
    // Nobody's flows.
    let mut elsewhere = without.clone();
    elsewhere.node_port_addresses = ["192.0.2.2".parse().unwrap()].into();
    assert_eq!(between(&without, &elsewhere), (false, String::new()));
}

#[test]
fn a_cleaner_looks_at_what_changed_only() {
    let other = || serving(&["ClusterIp 10.96.0.11:53"], "10.244.0.2:53");
    let one = node(&[("dns", serving(VIP, "10.244.0.1:53")), ("other", other())]);
    let replaced = node(&[("dns", serving(VIP, "10.244.0.3:53")), ("other", other())]);
    let mut cleaner = Cleaner::new();
    let first = cleaner.expected(&one, &one.as_change_set()).unwrap();
    assert_stale(&first, true, "10.96.0.11:53", "10.244.0.9:53");

    let change = one.changes_to(&replaced);
    let second = cleaner.expected(&replaced, &change).unwrap();
    assert_stale(&second, true, "10.96.0.10:53", "10.244.0.1:53");
    assert_stale(&second, false, "10.96.0.11:53", "10.244.0.9:53");

    assert!(cleaner.expected(&replaced, &ChangeSet::default()).is_none());
}

#[test]
fn frontends_that_an_earlier_run_served_are_cleaned_with_the_next_state() {
    let now = node(&[("dns", serving(VIP, "10.244.0.1:53"))]);
    let mut cleaner = Cleaner::new();
    cleaner.owe(["10.96.0.10:53", "10.96.0.12:53"].map(|one| one.parse().unwrap()));
    let expected = cleaner.expected(&now, &now.as_change_set()).unwrap();
    assert_stale(&expected, true, "10.96.0.12:53", "10.244.0.1:53");
    assert_stale(&expected, false, "10.96.0.10:53", "10.244.0.1:53");
}

fn refused() -> Result<Cleaned, ConntrackError> {
    Err(ConntrackError::Kernel {
        attempted: "testing",
        source: std::io::ErrorKind::PermissionDenied.into(),
    })
}

#[test]
fn a_clean_that_failed_is_made_up_for_without_another_change() {
    let mut cleaner = Cleaner::new();
    let mut clock = Instant::now();
    let before = node(&[("dns", serving(VIP, "10.244.0.1:53"))]);
    cleaner.expected(&before, &before.as_change_set()).unwrap();
    assert!(cleaner.missed(clock).is_none(), "nothing failed");
    let now = node(&[]);
    cleaner.expected(&now, &before.changes_to(&now)).unwrap();
    cleaner.done(refused(), clock).unwrap_err();
    assert!(cleaner.missed(clock).is_none(), "at once it fails again");
    // Nor with a change that makes nothing stale.
    assert!(cleaner.expected(&now, &ChangeSet::default()).is_none());
    for wait in [1, 2, 4] {
        assert!(cleaner.missed(clock).is_none());
        clock += Duration::from_secs(wait);
        let again = cleaner.missed(clock).unwrap();
        assert_stale(&again, true, "10.96.0.10:53", "10.244.0.1:53");
        cleaner.done(refused(), clock).unwrap_err();
    }
    clock += Duration::from_mins(1);
    assert!(cleaner.missed(clock).is_some());
    cleaner.done(Ok(Cleaned::default()), clock).unwrap();
    assert!(cleaner.missed(clock).is_none());
    assert!(cleaner.expected(&now, &ChangeSet::default()).is_none());
}

#[test]
fn a_change_that_needs_a_clean_makes_up_for_one_that_failed_too() {
    let mut cleaner = Cleaner::new();
    let other = || serving(&["ClusterIp 10.96.0.11:53"], "10.244.0.2:53");
    let before = node(&[("dns", serving(VIP, "10.244.0.1:53")), ("other", other())]);
    cleaner.expected(&before, &before.as_change_set()).unwrap();
    let one = node(&[("other", other())]);
    cleaner.expected(&one, &before.changes_to(&one)).unwrap();
    cleaner.done(refused(), Instant::now()).unwrap_err();
    let none = node(&[]);
    let all = cleaner.expected(&none, &one.changes_to(&none)).unwrap();
    assert_stale(&all, true, "10.96.0.10:53", "10.244.0.1:53");
    assert_stale(&all, true, "10.96.0.11:53", "10.244.0.2:53");
}
