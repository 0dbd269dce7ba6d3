//! What does not fit: said, and without harm to what is there.

use std::collections::BTreeSet;

use super::{
    super::{
        capacity::Capacity,
        memory_maps::MemoryMaps,
        program::{ProgramError, Refusal},
    },
    fixtures::*,
};

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
            Err(ProgramError::Refused(Refusal::Full(full))) => {
                assert_eq!((full.map, full.limit), ("SLOTS", 3));
                let reason = full.to_string();
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
