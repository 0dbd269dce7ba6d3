//! What is left to a packet backend beneath, and when.

use std::{collections::BTreeSet, sync::Arc};

use proxy_common::frontend::FrontendKey;
use proxy_model::{Change, ChangeSet, NodeState};

use super::{
    super::{capacity::Capacity, tables::Tables},
    fixtures::*,
};

struct Rig {
    maps: Shared,
    tables: Tables<Shared>,
    state: NodeState,
}

impl Rig {
    /// Two Services, the second one without endpoints.
    fn new(masquerade_all: bool) -> Self {
        let mut state = NodeState::default();
        state.traffic.masquerade_all = masquerade_all;
        for (number, endpoints) in [(1, BTreeSet::from([1, 2])), (2, BTreeSet::new())] {
            let service = Arc::new(service(number, &endpoints, None));
            state.services.insert(key(number), service);
        }
        let maps = Shared::default();
        Self {
            tables: Tables::new(maps.clone(), ROOM),
            maps,
            state,
        }
    }

    /// The same with room for two endpoints.
    fn narrow() -> Self {
        let mut rig = Self::new(false);
        let room = Capacity { slots: 2, ..ROOM };
        rig.tables = Tables::new(rig.maps.clone(), room);
        rig
    }

    /// The first Service gets other endpoints. Returns what became of connections to it, and what
    /// is said of it.
    fn change(&mut self, endpoints: &[u8]) -> (Outcome, Option<String>) {
        let endpoints = endpoints.iter().copied().collect();
        let changed = Arc::new(service(1, &endpoints, None));
        self.state.services.insert(key(1), Arc::clone(&changed));
        let change = ChangeSet {
            changes: vec![Change::Upsert {
                key: key(1),
                state: changed,
            }],
            ..ChangeSet::default()
        };
        let outcome = self.tables.sync(&self.state, &change).unwrap();
        let [first, _] = self.outcomes();
        (first, outcome.failures.get(&key(1)).cloned())
    }

    /// Brings `change` into force; says how much was written.
    fn sync(&mut self, change: &ChangeSet) -> usize {
        let writes = self.tables.sync(&self.state, change).unwrap().writes;
        assert_eq!(self.tables.differences(&self.state).unwrap(), []);
        writes
    }

    fn sync_all(&mut self) -> usize {
        self.sync(&self.state.as_change_set())
    }

    /// What becomes of connections to both.
    fn outcomes(&self) -> [Outcome; 2] {
        let mut keys = dialled();
        let mut next = || -> FrontendKey { keys.next().unwrap() };
        [next(), next()].map(|key| outcome(&self.maps.0.borrow(), &key))
    }

    fn leads(&self) -> bool {
        let wanted = dialled().take(2).map(|key| wanted(&self.state, &key));
        self.outcomes().iter().eq(wanted.collect::<Vec<_>>().iter())
    }

    fn leaves(&self) -> bool {
        self.outcomes() == [Outcome::Untouched, Outcome::Untouched]
    }
}

#[test]
fn with_masquerade_all_cluster_ips_are_left_to_a_packet_backend_that_serves() {
    let mut rig = Rig::new(true);
    rig.sync_all();
    assert!(rig.leads(), "alone");
    // Each time, one write for each frontend.
    assert!(rig.tables.lies_over(true));
    assert_eq!(rig.sync_all(), 2);
    assert!(rig.leaves());
    assert!(!rig.tables.lies_over(true), "nothing new");
    assert_eq!(rig.sync_all(), 0);
    assert!(rig.tables.lies_over(false));
    assert_eq!(rig.sync_all(), 2);
    assert!(rig.leads());
}

#[test]
fn without_it_nothing_depends_on_what_lies_beneath() {
    let mut rig = Rig::new(false);
    rig.sync_all();
    assert!(!rig.tables.lies_over(true));
    assert_eq!(rig.sync_all(), 0);
    assert!(rig.leads());
    // A brain elsewhere may say it later, in a change of the node.
    rig.state.traffic.masquerade_all = true;
    let change = ChangeSet {
        node: true,
        ..ChangeSet::default()
    };
    assert_eq!(rig.sync(&change), 2);
    assert!(rig.leaves());
    rig.state.traffic.masquerade_all = false;
    assert_eq!(rig.sync(&change), 2);
    assert!(rig.leads());
}

#[test]
fn what_an_agent_left_alone_the_next_one_leads_if_it_is_alone() {
    let mut rig = Rig::new(true);
    rig.tables.lies_over(true);
    rig.sync_all();
    assert!(rig.leaves());
    rig.tables = Tables::new(rig.maps.clone(), ROOM);
    rig.sync_all();
    assert!(rig.leads());
}

#[test]
fn a_service_that_does_not_fit_is_left_as_a_whole_where_something_serves_it() {
    for over in [false, true] {
        let mut rig = Rig::narrow();
        rig.tables.lies_over(over);
        rig.sync_all();
        assert!(rig.leads());
        let (outcome, reason) = rig.change(&[3, 4, 5]);
        let reason = reason.unwrap();
        assert!(reason.contains("SLOTS"), "{reason}");
        // Alone, what fits of it is better than nothing.
        assert_eq!(outcome == Outcome::Untouched, over, "{outcome:?}");
        assert_eq!(
            reason.contains("the layer beneath serves it"),
            over,
            "{reason}"
        );
        let (_, reason) = rig.change(&[3, 4]);
        assert_eq!(reason, None);
        assert!(rig.leads());
    }
}

#[test]
fn what_does_not_fit_is_told_by_every_comparison_until_it_fits() {
    let mut rig = Rig::narrow();
    rig.tables.lies_over(true);
    rig.sync_all();
    rig.change(&[3, 4, 5]);
    for _ in 0..3 {
        let repaired = rig.tables.repair(&rig.state).unwrap();
        assert!(repaired.outcome.failures.contains_key(&key(1)));
        assert_eq!(repaired.differences, []);
        assert_eq!(rig.tables.differences(&rig.state).unwrap(), []);
    }
    let (_, reason) = rig.change(&[3, 4]);
    assert_eq!(reason, None);
    let repaired = rig.tables.repair(&rig.state).unwrap();
    assert!(repaired.outcome.failures.is_empty());
}

#[test]
fn what_was_left_because_it_does_not_fit_is_looked_at_again_where_nothing_serves_it_any_more() {
    let mut rig = Rig::narrow();
    rig.tables.lies_over(true);
    rig.sync_all();
    rig.change(&[3, 4, 5]);
    assert!(rig.tables.lies_over(false));
}
