//! Differences between node-local states, in the order in which a backend must apply them.

use std::{collections::BTreeMap, sync::Arc};

use imbl::{OrdMap, ordmap::DiffItem};

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
                entry.keep_sets(old);
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

impl ServiceState {
    /// Takes sets over from `old` that did not change: whoever holds both states can tell by the
    /// pointer.
    pub fn keep_sets(&mut self, old: &Self) {
        for (set, old) in [
            (&mut self.cluster_endpoints, &old.cluster_endpoints),
            (&mut self.local_endpoints, &old.local_endpoints),
        ] {
            if set == old {
                set.clone_from(old);
            }
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

    /// What leads from this state to `now`. Costs what is not shared between the two: next to
    /// nothing if one was made out of the other.
    pub fn changes_to(&self, now: &Self) -> ChangeSet {
        let mut diff = Diff::default();
        for one in self.services.diff(&now.services) {
            match one {
                DiffItem::Add(key, state)
                | DiffItem::Update {
                    new: (key, state), ..
                } => diff.upserts.push(Change::Upsert {
                    key: key.clone(),
                    state: Arc::clone(state),
                }),
                DiffItem::Remove(key, _) => diff.deletes.push(Change::Delete { key: key.clone() }),
            }
        }
        diff.into_change_set(!self.leads_alike(now))
    }

    /// Whether all facts of the node are alike that decide where packets go, see
    /// [`ChangeSet::node`].
    fn leads_alike(&self, other: &Self) -> bool {
        self.node_port_addresses == other.node_port_addresses
            && self.service_cidrs == other.service_cidrs
            && self.node.host_addresses == other.node.host_addresses
            && self.node.pod_cidrs() == other.node.pod_cidrs()
            && self.traffic == other.traffic
    }
}
