//! A backend that hears of nothing but changes stays equal to the state, and at every step on the
//! way its clients reach what they dial.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use proxy_model::{
    Change, ChangeSet, IpNet, Model, NodeState, ServicePortKey, ServiceState, compute,
};

use crate::{
    dataplane::Dataplane,
    take,
    walk::{self, Objects},
};

/// The services that a backend was replayed of.
#[derive(Debug, Default, PartialEq)]
struct Replayed(BTreeMap<ServicePortKey, Arc<ServiceState>>);

impl Replayed {
    fn of(state: &NodeState) -> Self {
        let services = state.services.iter();
        Self(
            services
                .map(|(key, state)| (key.clone(), Arc::clone(state)))
                .collect(),
        )
    }

    /// Applies `change`; checks that it is minimal and in order.
    fn apply(&mut self, change: &ChangeSet) {
        let keys: Vec<_> = change
            .changes
            .iter()
            .map(|change| (matches!(change, Change::Delete { .. }), change.key()))
            .collect();
        assert!(
            keys.is_sorted_by(|a, b| a < b),
            "upserts, then deletes, in key order: {keys:?}"
        );
        for change in &change.changes {
            match change {
                Change::Upsert { key, state } => {
                    let old = self.0.insert(key.clone(), Arc::clone(state));
                    assert_ne!(
                        old.as_ref(),
                        Some(state),
                        "an upsert that changes nothing: {key}"
                    );
                }
                Change::Delete { key } => {
                    assert!(
                        self.0.remove(key).is_some(),
                        "a delete of what is not there: {key}"
                    );
                }
            }
        }
    }
}

/// What [`ChangeSet::node`] is about.
fn facts(state: &NodeState) -> impl PartialEq + use<> {
    (
        Arc::clone(&state.node_port_addresses),
        Arc::clone(&state.service_cidrs),
        Arc::clone(&state.node.host_addresses),
        <[IpNet]>::to_vec(state.node.pod_cidrs()),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_change_leads_from_the_old_state_to_the_new_one(
        settings in walk::settings(),
        steps in walk::steps(60),
        updates in prop::collection::vec(prop::bool::weighted(0.6), 60),
    ) {
        let mut objects = Objects::default();
        let mut model = Model::new(settings);
        let mut replayed = Replayed::default();
        let mut before = model.state().clone();
        let mut changed = false;
        for (step, update) in steps.into_iter().zip(updates) {
            for event in objects.take(step) {
                changed |= model.apply(event);
            }
            if !update {
                continue;
            }
            let change = model.update();
            let after = model.state();
            prop_assert!(!change.whole);
            replayed.apply(&change);
            prop_assert_eq!(&replayed, &Replayed::of(after));
            // No more is said than there is to say.
            prop_assert_eq!(change.node, facts(&before) != facts(after));
            let is_equal = facts(&before) == facts(after) && before.services == after.services;
            prop_assert_eq!(change.is_empty(), is_equal);
            prop_assert!(changed || *after == before, "the state changed by itself");
            before = after.clone();
            changed = false;
            prop_assert!(model.update().is_empty(), "a second update changes something");
            prop_assert_eq!(model.state(), &before);
        }
    }

    /// Between any two states: coalesced events make large changes.
    #[test]
    fn no_address_leads_to_nothing_while_a_change_is_applied(
        settings in walk::settings(),
        steps in walk::steps(60),
        updates in prop::collection::vec(prop::bool::weighted(0.2), 60),
    ) {
        let mut objects = Objects::default();
        let mut model = Model::new(settings);
        let mut dataplane = Dataplane::default();
        for (step, update) in steps.into_iter().zip(updates) {
            for event in objects.take(step) {
                model.apply(event);
            }
            if update {
                let change = model.update();
                let (before, after) = (dataplane.clone(), Dataplane::of(model.state()));
                dataplane.apply(&change, |between| between.check_between(&before, &after));
                prop_assert_eq!(&dataplane, &after);
            }
        }
    }

    #[test]
    fn the_whole_state_is_one_upsert_for_each_entry(
        settings in walk::settings(),
        steps in walk::steps(40),
    ) {
        let (_, events) = take(steps);
        let state = compute(settings, events);
        let change = state.as_change_set();
        prop_assert!(change.whole && change.node && !change.is_empty());
        let mut replayed = Replayed::default();
        replayed.apply(&change);
        prop_assert_eq!(replayed, Replayed::of(&state));
    }
}
