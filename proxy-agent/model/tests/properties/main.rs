//! Any walk through cluster states ends in the state that its last objects alone lead to, and
//! the changes on the way lead there step by step.

// `cfg(test)` holds here anyway; written down, it tells clippy that `unwrap` is fine.
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod walk;

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use proxy_model::{
    Change, ChangeSet, ClusterEvent, Endpoint, Model, NodeState, ServicePortKey, ServiceState,
    TrafficPolicy, compute,
};
use walk::{NODE, Objects, Step};

/// How a backend would hold what it was told.
#[derive(Debug, Default, PartialEq)]
struct Told(BTreeMap<ServicePortKey, Arc<ServiceState>>);

impl Told {
    /// Applies `change` as a backend does; checks that it is minimal and in order.
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

    fn of(state: &NodeState) -> Self {
        Self(
            state
                .services
                .iter()
                .map(|(key, state)| (key.clone(), Arc::clone(state)))
                .collect(),
        )
    }
}

/// Applies `change` to `told` and compares with the model.
fn follow(told: &mut Told, model: &mut Model) {
    let change = model.update();
    assert!(!change.whole);
    told.apply(&change);
    assert_eq!(*told, Told::of(model.state()));
    assert!(
        model.update().is_empty(),
        "a second update changes something"
    );
}

fn model_after(events: impl IntoIterator<Item = ClusterEvent>) -> Model {
    let mut model = Model::new(NODE);
    for event in events {
        model.apply(event);
    }
    model
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_walk_ends_where_its_last_objects_lead(
        steps in prop::collection::vec(walk::step(), 1..60),
        updates in prop::collection::vec(any::<bool>(), 60),
        seed in any::<u64>(),
    ) {
        let mut objects = Objects::default();
        let mut model = Model::new(NODE);
        let mut told = Told::default();
        let mut events = Vec::new();
        for (step, update) in steps.into_iter().zip(updates) {
            for event in objects.take(step) {
                model.apply(event.clone());
                events.push(event);
            }
            if update {
                follow(&mut told, &mut model);
                reference::check(&objects, model.state());
            }
        }
        follow(&mut told, &mut model);
        reference::check(&objects, model.state());

        // All events at once.
        prop_assert_eq!(&compute(NODE, events), model.state());
        // The remaining objects alone, in several orders, updated after each.
        let mut remaining = objects.events();
        prop_assert_eq!(&compute(NODE, remaining.clone()), model.state());
        remaining.reverse();
        prop_assert_eq!(&compute(NODE, remaining.clone()), model.state());
        walk::shuffle(&mut remaining, seed);
        let mut stepwise = Model::new(NODE);
        let mut told = Told::default();
        for event in remaining.clone() {
            stepwise.apply(event);
            follow(&mut told, &mut stepwise);
        }
        prop_assert_eq!(stepwise.state(), model.state());
        // What is there already changes nothing.
        for event in remaining {
            prop_assert!(!model.apply(event.clone()), "changes something: {event:?}");
        }
        prop_assert!(model.update().is_empty());
    }

    /// A caller that was told of no change need not look.
    #[test]
    fn without_a_change_of_an_object_the_state_stays(
        steps in prop::collection::vec(walk::step(), 1..60),
    ) {
        let mut objects = Objects::default();
        let mut model = Model::new(NODE);
        for step in steps {
            let before = model.state().clone();
            let mut changed = false;
            for event in objects.take(step) {
                changed |= model.apply(event);
            }
            let change = model.update();
            prop_assert!(changed || (change.is_empty() && *model.state() == before));
        }
    }

    /// `standings` tells why; what it says is used must be what is used.
    #[test]
    fn standings_explain_the_sets(steps in prop::collection::vec(walk::step(), 1..40)) {
        let mut objects = Objects::default();
        let model = Model::after(NODE, steps.into_iter().flat_map(|step| objects.take(step)));
        for (key, service) in &model.state().services {
            for (policy, set) in [
                (TrafficPolicy::Cluster, &service.cluster_endpoints),
                (TrafficPolicy::Local, &service.local_endpoints),
            ] {
                let Some(set) = set else { continue };
                let used: Vec<_> = model
                    .standings(key, policy)
                    .into_iter()
                    .filter(|standing| standing.role.is_used())
                    .map(|standing| Endpoint { address: standing.address })
                    .collect();
                prop_assert_eq!(&used, &**set);
            }
        }
    }

    #[test]
    fn deleting_everything_leaves_nothing(
        steps in prop::collection::vec(walk::step(), 1..40),
        seed in any::<u64>(),
    ) {
        let mut objects = Objects::default();
        let mut model = model_after(steps.into_iter().flat_map(|step| objects.take(step)));
        let mut told = Told::default();
        follow(&mut told, &mut model);
        let mut deletions = objects.deletions();
        walk::shuffle(&mut deletions, seed);
        for event in deletions {
            model.apply(event);
            follow(&mut told, &mut model);
        }
        prop_assert_eq!(model.state(), &compute(NODE, []));
    }

    #[test]
    fn the_whole_state_is_one_upsert_for_each_entry(
        steps in prop::collection::vec(walk::step(), 1..40),
    ) {
        let mut objects = Objects::default();
        let state = compute(NODE, steps.into_iter().flat_map(|step: Step| objects.take(step)));
        let change = state.as_change_set();
        prop_assert!(change.whole && !change.is_empty());
        let mut told = Told::default();
        told.apply(&change);
        prop_assert_eq!(told, Told::of(&state));
    }
}
