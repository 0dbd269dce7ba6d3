//! The node-local state as a brain sends it: the counterpart of [`proxy_model::Model`] on the
//! backend's side. Pure; does not know how batches arrive.

use std::{collections::BTreeMap, sync::Arc};

use proxy_model::{ChangeSet, Diagnostic, NodeState, ServiceState};

use crate::{Batch, Item, ItemKey, Operation, Token};

/// Applies batches, and returns what they changed.
///
/// A reset costs a backend only what differs: what comes again unchanged is no change. So a brain
/// can be replaced without the kernel noticing.
#[derive(Debug, Clone, Default)]
pub struct Replica {
    state: NodeState,
    /// The state of the last update.
    settled: NodeState,
    diagnostics: BTreeMap<Arc<str>, Vec<Diagnostic>>,
    token: Option<Token>,
}

impl Replica {
    /// A replica that was given nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a batch. Nothing is computed before [`Self::update`].
    pub fn apply(&mut self, batch: Batch) {
        let Batch {
            reset,
            operations,
            token,
            triggers: _,
        } = batch;
        self.token = Some(token);
        let mut diagnosed = reset;
        let before = reset.then(|| {
            self.diagnostics.clear();
            std::mem::take(&mut self.state)
        });
        for operation in operations {
            match operation {
                Operation::Upsert(Item::Node(facts)) => facts.put(&mut self.state),
                Operation::Upsert(Item::ServicePort(key, state)) => {
                    let known = before.as_ref().unwrap_or(&self.state);
                    let state = keep(state, known.services.get(&key));
                    self.state.services.insert(key, state);
                }
                Operation::Upsert(Item::HealthCheck(key, check)) => {
                    self.state.health_checks.insert(key, check);
                }
                Operation::Upsert(Item::Diagnostics(all)) => {
                    if let Some(first) = all.first() {
                        diagnosed = true;
                        self.diagnostics.insert(Arc::clone(&first.object), all);
                    }
                }
                Operation::Delete(ItemKey::ServicePort(key)) => {
                    self.state.services.remove(&key);
                }
                Operation::Delete(ItemKey::HealthCheck(key)) => {
                    self.state.health_checks.remove(&key);
                }
                Operation::Delete(ItemKey::Diagnostics(object)) => {
                    diagnosed |= self.diagnostics.remove(&object).is_some();
                }
            }
        }
        if diagnosed {
            self.state.diagnostics = self.diagnostics.values().flatten().cloned().collect();
        }
    }

    /// What the batches since the last update changed, in the order in which a backend must apply
    /// it.
    pub fn update(&mut self) -> ChangeSet {
        let change = self.settled.changes_to(&self.state);
        self.settled = self.state.clone();
        change
    }

    /// The state after the last batch.
    pub fn state(&self) -> &NodeState {
        &self.state
    }

    /// Which state of which brain that is; `None` before the first batch.
    pub fn token(&self) -> Option<Token> {
        self.token
    }
}

/// What did not change stays the same allocation: a backend can tell by the pointer.
fn keep(now: Arc<ServiceState>, before: Option<&Arc<ServiceState>>) -> Arc<ServiceState> {
    let Some(before) = before else { return now };
    if *before == now {
        return Arc::clone(before);
    }
    let mut now = now;
    Arc::make_mut(&mut now).keep_sets(before);
    now
}
