//! Numbers in maps that take the place of others.

use std::{collections::BTreeSet, sync::Arc};

use proxy_model::{NodeState, ServicePortKey};

use super::{super::program::Programmer, fixtures::*};

fn state(services: &[(u8, &[u8], Option<&[u8]>)]) -> NodeState {
    let set = |endpoints: &[u8]| endpoints.iter().copied().collect::<BTreeSet<_>>();
    let mut state = NodeState::default();
    for (number, cluster, local) in services {
        let service = service(*number, &set(cluster), local.map(set).as_ref());
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
        &state(&[
            (1, &[1, 2, 3], None),
            (2, &[4], Some(&[4])),
            (3, &[5, 6], None),
        ]),
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
    let changed = state(&[
        (1, &[2, 3, 7], None),
        (2, &[4], Some(&[4])),
        (4, &[5], None),
    ]);
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
