//! What leads from one state to another, item by item, and a state as a whole. Pure.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use imbl::ordmap::DiffItem;
use proxy_model::{Diagnostic, HealthCheckKey, NodeState, ServicePortKey};

use crate::{Item, ItemKey, NodeFacts, Operation};

/// What leads from `before` to `now`: upserts first, then deletes. Costs what the two states do
/// not share.
pub fn between(before: &NodeState, now: &NodeState) -> Vec<Operation> {
    let mut upserts = Vec::new();
    let mut deletes = Vec::new();
    let facts = NodeFacts::of(now);
    if NodeFacts::of(before) != facts {
        upserts.push(Item::Node(Box::new(facts)));
    }
    for one in before.services.diff(&now.services) {
        match one {
            DiffItem::Add(key, state)
            | DiffItem::Update {
                new: (key, state), ..
            } => upserts.push(Item::ServicePort(key.clone(), Arc::clone(state))),
            DiffItem::Remove(key, _) => deletes.push(ItemKey::ServicePort(key.clone())),
        }
    }
    for one in before.health_checks.diff(&now.health_checks) {
        match one {
            DiffItem::Add(key, check)
            | DiffItem::Update {
                new: (key, check), ..
            } => upserts.push(Item::HealthCheck(key.clone(), *check)),
            DiffItem::Remove(key, _) => deletes.push(ItemKey::HealthCheck(key.clone())),
        }
    }
    if !Arc::ptr_eq(&before.diagnostics, &now.diagnostics) {
        let (old, new) = (by_object(before), by_object(now));
        let changed = new
            .iter()
            .filter(|(object, all)| old.get(*object) != Some(*all));
        upserts.extend(changed.map(|(_, all)| Item::Diagnostics(all.to_vec())));
        let gone = old.keys().filter(|object| !new.contains_key(*object));
        deletes.extend(gone.map(|object| ItemKey::Diagnostics(Arc::clone(object))));
    }
    let upserts = upserts.into_iter().map(Operation::Upsert);
    upserts
        .chain(deletes.into_iter().map(Operation::Delete))
        .collect()
}

/// What `before` holds of the items that `changes` leads away from, in endpoints: a Service port
/// takes as much as eight of them, a diagnostic as four.
pub fn weight(before: &NodeState, changes: &[Operation]) -> usize {
    let service = |key: &ServicePortKey| {
        let service = before.services.get(key);
        let sets = service.map(|one| [&one.cluster_endpoints, &one.local_endpoints]);
        let sets = sets.into_iter().flatten().flatten();
        8 + sets.map(|set| set.len()).sum::<usize>()
    };
    let mut weight = 0;
    let mut diagnosed = false;
    for operation in changes {
        match operation {
            Operation::Upsert(Item::ServicePort(key, _))
            | Operation::Delete(ItemKey::ServicePort(key)) => weight += service(key),
            Operation::Upsert(Item::Diagnostics(_))
            | Operation::Delete(ItemKey::Diagnostics(_)) => diagnosed = true,
            _ => weight += 8,
        }
    }
    // They are one list.
    let list = if diagnosed {
        before.diagnostics.len()
    } else {
        0
    };
    weight + 4 * list
}

fn by_object(state: &NodeState) -> BTreeMap<&Arc<str>, &[Diagnostic]> {
    let groups = state.diagnostics.chunk_by(|a, b| a.object == b.object);
    groups.map(|all| (&all[0].object, all)).collect()
}

/// A state as a whole, a few items at a time: while a slow client is told it, only the state is
/// held, which is shared, and no list of its own.
#[derive(Debug)]
pub struct Whole {
    state: NodeState,
    next: Next,
}

/// Where a [`Whole`] goes on.
#[derive(Debug)]
enum Next {
    Node,
    ServicesAfter(Option<ServicePortKey>),
    HealthChecksAfter(Option<HealthCheckKey>),
    /// How many diagnostics were told.
    Diagnostics(usize),
}

/// Items that are made, and handed to a connection, at a time: they hold what they were made of.
pub const AT_A_TIME: usize = 128;

impl Whole {
    /// All of `state`, from the beginning.
    pub fn of(state: NodeState) -> Self {
        Self {
            state,
            next: Next::Node,
        }
    }

    /// The next items; empty at the end.
    pub fn next_items(&mut self) -> Vec<Item> {
        loop {
            let (items, next) = match &self.next {
                Next::Node => (
                    vec![Item::Node(Box::new(NodeFacts::of(&self.state)))],
                    Next::ServicesAfter(None),
                ),
                Next::ServicesAfter(last) => {
                    let rest = self
                        .state
                        .services
                        .range::<_, ServicePortKey>(after(last.as_ref()));
                    let part: Vec<_> = rest.take(AT_A_TIME).collect();
                    match part.last() {
                        None => (vec![], Next::HealthChecksAfter(None)),
                        Some((last, _)) => (
                            part.iter()
                                .map(|(key, one)| {
                                    Item::ServicePort((*key).clone(), Arc::clone(one))
                                })
                                .collect(),
                            Next::ServicesAfter(Some((*last).clone())),
                        ),
                    }
                }
                Next::HealthChecksAfter(last) => {
                    let rest = self
                        .state
                        .health_checks
                        .range::<_, HealthCheckKey>(after(last.as_ref()));
                    let part: Vec<_> = rest.take(AT_A_TIME).collect();
                    match part.last() {
                        None => (vec![], Next::Diagnostics(0)),
                        Some((last, _)) => (
                            part.iter()
                                .map(|(key, one)| Item::HealthCheck((*key).clone(), **one))
                                .collect(),
                            Next::HealthChecksAfter(Some((*last).clone())),
                        ),
                    }
                }
                Next::Diagnostics(told) => {
                    let groups = self.state.diagnostics[*told..]
                        .chunk_by(|a, b| a.object == b.object)
                        .take(AT_A_TIME);
                    let items: Vec<_> = groups.map(|all| Item::Diagnostics(all.to_vec())).collect();
                    let count = |item: &Item| match item {
                        Item::Diagnostics(all) => all.len(),
                        _ => 0,
                    };
                    let told = told + items.iter().map(count).sum::<usize>();
                    if items.is_empty() {
                        return items;
                    }
                    (items, Next::Diagnostics(told))
                }
            };
            self.next = next;
            if !items.is_empty() {
                return items;
            }
        }
    }
}

/// All keys behind `last`.
fn after<K>(last: Option<&K>) -> (Bound<&K>, Bound<&K>) {
    (
        last.map_or(Bound::Unbounded, Bound::Excluded),
        Bound::Unbounded,
    )
}
