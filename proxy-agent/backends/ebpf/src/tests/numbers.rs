//! Numbers in maps that take the place of others.

use std::{collections::BTreeSet, sync::Arc};

use proxy_model::{NodeState, ServicePortKey};

use super::{super::program::Programmer, fixtures::*};

/// Services by number, with their endpoints.
fn state(services: &[(u8, &[u8])]) -> NodeState {
    let mut state = NodeState::default();
    for (number, endpoints) in services {
        let endpoints: BTreeSet<u8> = endpoints.iter().copied().collect();
        // The second one has a local set.
        let local = (*number == 2).then_some(&endpoints);
        let service = service(*number, &endpoints, local);
        state.services.insert(key(*number), Arc::new(service));
    }
    state
}

/// The numbers of a Service port, its sets and its endpoints.
fn numbers(programmer: &Programmer<Shared>, key: &ServicePortKey) -> Vec<u32> {
    let service = &programmer.programmed().services[key];
    let sets = service.sets().map(|set| set.number);
    let endpoints = service.endpoints.values().copied();
    let own = [service.number].into_iter();
    own.chain(sets).chain(endpoints).collect()
}

#[test]
fn what_stays_keeps_its_numbers_and_what_is_new_gets_others() {
    let before = Shared::default();
    let mut programmer = resume(before.clone(), ROOM);
    program(
        &mut programmer,
        &state(&[(1, &[1, 2, 3]), (2, &[4]), (3, &[5, 6])]),
    );
    let [first, second] = [1, 2].map(|number| numbers(&programmer, &key(number)));
    let all = programmer.programmed().numbers();

    let after = Shared::default();
    // What outlives the maps.
    after.0.borrow_mut().reserved = before.0.borrow().reserved;
    let mut next = Programmer::new(after, ROOM);
    next.remember(resume(before, ROOM).into_programmed());
    next.adopt().unwrap();
    // One endpoint less, and one more.
    let changed = state(&[(1, &[2, 3, 7]), (2, &[4]), (4, &[5])]);
    program(&mut next, &changed);
    assert_eq!(numbers(&next, &key(2)), second);
    let kept = numbers(&next, &key(1));
    assert_eq!(kept[..2], first[..2], "itself, and its set");
    assert_eq!(kept[2..4], first[3..5], "endpoints that stay");
    assert!(!all.contains(&kept[4]), "{kept:?}");
    let new = numbers(&next, &key(4));
    assert!(!new.iter().any(|number| all.contains(number)), "{new:?}");

    // A Service that goes and comes back is a new one.
    next.remove(&key(2)).unwrap();
    program(&mut next, &changed);
    assert_ne!(numbers(&next, &key(2)), second);
}
