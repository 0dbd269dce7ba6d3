//! A dataplane as simple as can be, which applies changes one by one as [`ChangeSet`] demands. It
//! holds what every backend holds in some form: which Service port an address leads to, and what
//! each Service port does.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use proxy_model::{
    Change, ChangeSet, Frontend, IpFamily, NodeState, Protocol, ServicePortKey, ServiceState,
};

/// An address that clients dial; `None` for the node's own.
type Address = (IpFamily, Protocol, Option<IpAddr>, u16);

#[derive(Debug, Default, Clone, PartialEq)]
pub struct Dataplane {
    frontends: BTreeMap<Address, ServicePortKey>,
    services: BTreeMap<ServicePortKey, Arc<ServiceState>>,
}

impl Dataplane {
    /// Holds `state`.
    pub fn of(state: &NodeState) -> Self {
        let mut dataplane = Self::default();
        for (key, service) in &state.services {
            dataplane.upsert(key, service);
        }
        dataplane
    }

    /// Applies `change` and calls `look` after each step.
    pub fn apply(&mut self, change: &ChangeSet, mut look: impl FnMut(&Self)) {
        // What an upsert gives up stays until the last one is done: it may be another's by then.
        let mut given_up = Vec::new();
        let mut changes = change.changes.iter().peekable();
        while let Some(change) = changes.next() {
            match change {
                Change::Upsert { key, state } => {
                    let before = self.services.get(key);
                    for frontend in before.iter().flat_map(|before| &before.frontends) {
                        given_up.push((address(key, frontend), key));
                    }
                    self.upsert(key, state);
                }
                Change::Delete { key } => {
                    if let Some(gone) = self.services.get(key).cloned() {
                        for frontend in &gone.frontends {
                            self.release(address(key, frontend), key, &[]);
                        }
                    }
                    self.services.remove(key);
                }
            }
            look(self);
            if !matches!(changes.peek(), Some(Change::Upsert { .. })) {
                for (address, key) in given_up.drain(..) {
                    let now = Arc::clone(&self.services[key]);
                    self.release(address, key, &now.frontends);
                    look(self);
                }
            }
        }
    }

    fn upsert(&mut self, key: &ServicePortKey, state: &Arc<ServiceState>) {
        self.services.insert(key.clone(), Arc::clone(state));
        for frontend in &state.frontends {
            self.frontends.insert(address(key, frontend), key.clone());
        }
    }

    /// Takes `address` out if it is still `key`'s, and not among those that it wants.
    fn release(&mut self, address: Address, key: &ServicePortKey, wanted: &[Frontend]) {
        let is_wanted = wanted.iter().any(|one| self::address(key, one) == address);
        if !is_wanted && self.frontends.get(&address) == Some(key) {
            self.frontends.remove(&address);
        }
    }

    /// Checks a moment between `before` and `after`: no address leads to nothing, those that both
    /// serve are served, and what they lead to is what one of the two says.
    pub fn check_between(&self, before: &Self, after: &Self) {
        for (address, key) in &self.frontends {
            assert!(
                self.services.contains_key(key),
                "{address:?} leads to {key}, which is not there"
            );
        }
        for address in before.frontends.keys() {
            if !after.frontends.contains_key(address) {
                continue;
            }
            let key = self.frontends.get(address);
            let key = key.unwrap_or_else(|| panic!("{address:?} is not served for a moment"));
            assert!(
                [before, after]
                    .map(|one| &one.frontends[address])
                    .contains(&key),
                "{address:?} leads to {key}, which is none of its owners"
            );
            let said = [before, after].map(|one| one.services.get(key));
            assert!(
                said.contains(&self.services.get(key)),
                "{address:?} leads to {key} in a state that it never had"
            );
        }
    }
}

fn address(key: &ServicePortKey, frontend: &Frontend) -> Address {
    (key.family, key.protocol, frontend.address, frontend.port)
}
