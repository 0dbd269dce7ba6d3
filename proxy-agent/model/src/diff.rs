//! Differences between node-local states, in the order in which a backend must apply them.

use std::{collections::BTreeMap, sync::Arc};

use imbl::OrdMap;

use crate::{
    Change, ChangeSet, IpFamily, NodeState, Protocol, ServiceName, ServicePortKey, ServiceState,
};

/// Collects changes Service by Service and orders them.
#[derive(Debug, Default)]
pub(crate) struct Diff {
    upserts: Vec<Change>,
    deletes: Vec<Change>,
}

impl Diff {
    /// Replaces the entries of `service` in `state` by `entries` and notes what that changed.
    /// Equal entries keep their place and their `Arc`. Services must come in order.
    pub(crate) fn replace(
        &mut self,
        state: &mut OrdMap<ServicePortKey, Arc<ServiceState>>,
        service: &ServiceName,
        entries: BTreeMap<ServicePortKey, ServiceState>,
    ) {
        let gone: Vec<_> = keys_of(state, service)
            .filter(|key| !entries.contains_key(key))
            .cloned()
            .collect();
        for key in gone {
            state.remove(&key);
            self.deletes.push(Change::Delete { key });
        }
        for (key, mut entry) in entries {
            if let Some(old) = state.get(&key) {
                if **old == entry {
                    continue;
                }
                keep_sets(&mut entry, old);
            }
            let entry = Arc::new(entry);
            state.insert(key.clone(), Arc::clone(&entry));
            self.upserts.push(Change::Upsert { key, state: entry });
        }
    }

    /// The changes: upserts first, then deletes, each in key order; `node` as in [`ChangeSet`].
    pub(crate) fn into_change_set(self, node: bool) -> ChangeSet {
        let mut changes = self.upserts;
        changes.extend(self.deletes);
        ChangeSet {
            whole: false,
            node,
            changes,
        }
    }
}

/// A set that did not change stays the same allocation: whoever holds both states can tell by the
/// pointer.
fn keep_sets(state: &mut ServiceState, old: &ServiceState) {
    for (set, old) in [
        (&mut state.cluster_endpoints, &old.cluster_endpoints),
        (&mut state.local_endpoints, &old.local_endpoints),
    ] {
        if set == old {
            set.clone_from(old);
        }
    }
}

/// The keys of one Service, found without looking at any other.
fn keys_of<'a>(
    state: &'a OrdMap<ServicePortKey, Arc<ServiceState>>,
    service: &'a ServiceName,
) -> impl Iterator<Item = &'a ServicePortKey> {
    // The smallest key that the Service can have.
    let first = ServicePortKey {
        service: service.clone(),
        port: Arc::default(),
        protocol: Protocol::Tcp,
        family: IpFamily::V4,
    };
    state
        .range(first..)
        .map(|(key, _)| key)
        .take_while(move |key| key.service == *service)
}

impl NodeState {
    /// The whole state as a change: what a backend gets on its first sync and after an error.
    pub fn as_change_set(&self) -> ChangeSet {
        let upsert = |(key, state): (&ServicePortKey, &Arc<ServiceState>)| Change::Upsert {
            key: key.clone(),
            state: Arc::clone(state),
        };
        ChangeSet {
            whole: true,
            node: true,
            changes: self.services.iter().map(upsert).collect(),
        }
    }
}
