//! Any walk through cluster states ends in the state that its last objects alone lead to, and
//! the changes on the way lead there step by step.

// `cfg(test)` holds here anyway; written down, it tells clippy that `unwrap` is fine.
#[cfg(test)]
mod changes;
#[cfg(test)]
mod dataplane;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod walk;

use proptest::prelude::*;
use proxy_model::{ClusterEvent, Endpoint, Model, NodeState, Settings, TrafficPolicy, compute};
use walk::{Objects, Step};

/// What steps from an empty cluster lead to: the objects, and the events on the way.
fn take(steps: Vec<Step>) -> (Objects, Vec<ClusterEvent>) {
    let mut objects = Objects::default();
    let events = steps
        .into_iter()
        .flat_map(|step| objects.take(step))
        .collect();
    (objects, events)
}

/// The state after one update for each event.
fn stepwise(settings: &Settings, events: impl IntoIterator<Item = ClusterEvent>) -> NodeState {
    let mut model = Model::new(settings.clone());
    for event in events {
        model.apply(event);
        model.update();
    }
    model.state().clone()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever events are coalesced, the state at each update is that of the objects then.
    #[test]
    fn a_walk_passes_through_what_its_objects_mean(
        settings in walk::settings(),
        steps in walk::steps(60),
        updates in prop::collection::vec(any::<bool>(), 60),
    ) {
        let mut objects = Objects::default();
        let mut model = Model::new(settings.clone());
        reference::check(&settings, &objects, model.state());
        for (step, update) in steps.into_iter().zip(updates) {
            for event in objects.take(step) {
                model.apply(event);
            }
            if update {
                model.update();
                reference::check(&settings, &objects, model.state());
            }
        }
        model.update();
        reference::check(&settings, &objects, model.state());
    }

    /// The state is that of the last objects, whatever came before, in whatever order.
    #[test]
    fn a_walk_ends_where_its_last_objects_lead(
        settings in walk::settings(),
        steps in walk::steps(60),
        seed in any::<u64>(),
    ) {
        let (objects, events) = take(steps);
        let remaining = objects.events();
        let expected = compute(settings.clone(), remaining.clone());

        // The walk itself: all events at once, one by one, and in other orders.
        prop_assert_eq!(&compute(settings.clone(), events.clone()), &expected);
        prop_assert_eq!(&stepwise(&settings, events.clone()), &expected);
        prop_assert_eq!(&stepwise(&settings, walk::interleave(events, seed)), &expected);

        // The remaining objects alone: in order, reversed and shuffled.
        prop_assert_eq!(&stepwise(&settings, remaining.clone()), &expected);
        let mut other = remaining.clone();
        other.reverse();
        prop_assert_eq!(&compute(settings.clone(), other.clone()), &expected);
        prop_assert_eq!(&stepwise(&settings, other.clone()), &expected);
        walk::shuffle(&mut other, seed);
        prop_assert_eq!(&compute(settings.clone(), other.clone()), &expected);
        prop_assert_eq!(&stepwise(&settings, other), &expected);

        // What is there already changes nothing.
        let mut model = Model::after(settings, remaining.clone());
        for event in remaining {
            prop_assert!(!model.apply(event.clone()), "changes something: {event:?}");
        }
        prop_assert!(model.update().is_empty());
    }

    #[test]
    fn deleting_everything_leaves_nothing(
        settings in walk::settings(),
        steps in walk::steps(40),
        seed in any::<u64>(),
    ) {
        let (objects, events) = take(steps);
        let mut model = Model::after(settings.clone(), events);
        let mut deletions = objects.deletions();
        walk::shuffle(&mut deletions, seed);
        for event in deletions {
            model.apply(event);
            model.update();
        }
        prop_assert_eq!(model.state(), &compute(settings, objects.host()));
    }

    /// `standings` tells why; what it says is used must be what is used.
    #[test]
    fn standings_explain_the_sets(settings in walk::settings(), steps in walk::steps(40)) {
        let (_, events) = take(steps);
        let model = Model::after(settings, events);
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
                    .map(|standing| Endpoint {
                        address: standing.address,
                        local: standing.node.map(|node| node == walk::NODE),
                    })
                    .collect();
                prop_assert_eq!(&used, &**set);
            }
        }
    }
}
