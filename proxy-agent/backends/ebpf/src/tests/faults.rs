//! Writes that the kernel refuses: one Service may suffer, the others must not, and what became of
//! the maps is found out.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use proptest::prelude::*;
use proxy_common::{address, frontend::FrontendKey, node};
use proxy_model::{ChangeSet, NodeState};

use super::{
    super::{
        entry::{Entries, Entry, Key, MapError, ServiceMaps},
        memory_maps::MemoryMaps,
        tables::Tables,
    },
    fixtures::*,
};

/// What becomes of the next writes, one after another; then all succeed.
type Plan = Rc<RefCell<Vec<Fault>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// ENOMEM, or E2BIG: for entries that need memory.
    NoRoom,
    /// Anything else: for every write.
    Broken,
}

#[derive(Default, Clone)]
struct Faulty {
    maps: Rc<RefCell<MemoryMaps>>,
    plan: Plan,
}

impl Faulty {
    fn attempt(&self, needs_room: bool) -> Result<(), MapError> {
        let fault = self.plan.borrow_mut().pop().unwrap_or(Fault::None);
        let fails = match fault {
            Fault::None => false,
            Fault::NoRoom => needs_room,
            Fault::Broken => true,
        };
        if !fails {
            return Ok(());
        }
        Err(MapError {
            map: "SLOTS",
            operation: "writing to map",
            reason: "planned".to_owned(),
            no_room: fault == Fault::NoRoom,
        })
    }
}

impl ServiceMaps for Faulty {
    fn put(&mut self, entry: &Entry) -> Result<(), MapError> {
        self.attempt(true)?;
        self.maps.borrow_mut().put(entry)
    }
    fn remove(&mut self, key: &Key) -> Result<(), MapError> {
        self.attempt(false)?;
        self.maps.borrow_mut().remove(key)
    }
    fn entries(&self) -> Result<Entries, MapError> {
        self.maps.borrow().entries()
    }
    fn reserved_numbers(&self) -> Result<u32, MapError> {
        self.maps.borrow().reserved_numbers()
    }
    fn reserve_numbers(&mut self, end: u32) -> Result<(), MapError> {
        self.maps.borrow_mut().reserve_numbers(end)
    }
}

impl Faulty {
    /// What clients meet at each frontend.
    fn outcomes(&self) -> BTreeMap<FrontendKey, Outcome> {
        let maps = self.maps.borrow();
        dialled().map(|key| (key, outcome(&maps, &key))).collect()
    }
}

fn wanted_outcomes(state: &NodeState) -> BTreeMap<FrontendKey, Outcome> {
    dialled().map(|key| (key, wanted(state, &key))).collect()
}

fn plan(fault: Fault) -> impl Strategy<Value = Vec<Fault>> {
    prop::collection::vec(prop_oneof![4 => Just(Fault::None), 1 => Just(fault)], 0..40)
}

fn programmed(state: &NodeState) -> (Faulty, Tables<Faulty>) {
    let maps = Faulty::default();
    let mut tables = Tables::new(maps.clone(), ROOM);
    tables.sync(state, &state.as_change_set()).unwrap();
    (maps, tables)
}

/// A change of something else.
fn nothing() -> ChangeSet {
    let mut change = NodeState::default().as_change_set();
    change.whole = false;
    change
}

proptest! {
    #[test]
    fn no_room_for_one_service_keeps_no_other_from_its_change(
        (old, new, plan) in (states(), states(), plan(Fault::NoRoom))
    ) {
        let (maps, mut tables) = programmed(&old);
        *maps.plan.borrow_mut() = plan;
        let report = tables.sync(&new, &new.as_change_set()).unwrap();
        let (failed, left_out) = (report.failures, report.left_out);
        for (key, seen) in maps.outcomes() {
            let (own, _) = node::as_dialled(&key.address);
            if left_out.contains(&address::to_ip(own.address)) {
                continue;
            }
            // What a Service that failed leaves behind is its own affair.
            if owner(&new, &key).is_some_and(|owner| !failed.contains_key(&owner)) {
                prop_assert_eq!(seen, wanted(&new, &key), "{:?}, failed: {:?}", key, &failed);
            }
        }
        maps.plan.borrow_mut().clear();
        // It is tried again with the next change, whatever that is, and nothing is left behind.
        tables.sync(&new, &nothing()).unwrap();
        prop_assert_eq!(maps.outcomes(), wanted_outcomes(&new));
        prop_assert_eq!(tables.repair(&new).unwrap().outcome.writes, 0);
    }

    #[test]
    fn after_any_error_the_next_sync_makes_it_right(
        (old, new, plan) in (states(), states(), plan(Fault::Broken))
    ) {
        let (maps, mut tables) = programmed(&old);
        *maps.plan.borrow_mut() = plan;
        let result = tables.sync(&new, &new.as_change_set());
        if result.is_ok() {
            prop_assert_eq!(maps.outcomes(), wanted_outcomes(&new));
        }
        maps.plan.borrow_mut().clear();
        // A small change is a whole one after an error.
        tables.sync(&new, &nothing()).unwrap();
        prop_assert_eq!(maps.outcomes(), wanted_outcomes(&new));
        prop_assert_eq!(tables.differences(&new).unwrap(), vec![]);
    }

    #[test]
    fn a_repair_that_fails_half_way_is_continued(
        (state, plan) in (states(), plan(Fault::Broken))
    ) {
        let (maps, mut tables) = programmed(&state);
        maps.maps.borrow_mut().entries.clear();
        *maps.plan.borrow_mut() = plan;
        let first = tables.repair(&state);
        maps.plan.borrow_mut().clear();
        if first.is_err() {
            tables.repair(&state).unwrap();
        }
        prop_assert_eq!(maps.outcomes(), wanted_outcomes(&state));
        prop_assert_eq!(tables.differences(&state).unwrap(), vec![]);
    }
}
