//! The store behind one or several servers, and a way to hear of its changes.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use super::{kind::Kind, store::Store};

/// What the servers of one cluster share.
#[derive(Debug)]
pub(super) struct Cluster {
    inner: Mutex<Inner>,
    /// The version of the store.
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    absent: BTreeSet<Kind>,
    page: Option<usize>,
}

impl Cluster {
    pub(super) fn new() -> Self {
        let store = Store::new();
        let changed = watch::Sender::new(store.version());
        let inner = Inner {
            store,
            absent: BTreeSet::new(),
            page: None,
        };
        Self {
            inner: Mutex::new(inner),
            changed,
        }
    }

    /// Looks at the store.
    pub(super) fn read<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        look(&self.locked().store)
    }

    /// Changes the store and tells whoever watches.
    pub(super) fn write<T>(&self, change: impl FnOnce(&mut Store) -> T) -> T {
        let mut inner = self.locked();
        let result = change(&mut inner.store);
        // Under the lock: versions must not be told out of order.
        self.changed.send_replace(inner.store.version());
        result
    }

    /// The version of the store, and when it changes.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Whether the servers know `kind` at all.
    pub(super) fn serves(&self, kind: Kind) -> bool {
        !self.locked().absent.contains(&kind)
    }

    pub(super) fn set_served(&self, kind: Kind, served: bool) {
        let mut inner = self.locked();
        if served {
            inner.absent.remove(&kind);
        } else {
            inner.absent.insert(kind);
        }
    }

    /// How many objects a page has at most.
    pub(super) fn page(&self) -> Option<usize> {
        self.locked().page
    }

    pub(super) fn set_page(&self, page: Option<usize>) {
        self.locked().page = page;
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        // What changes a store either happens or does not: there is nothing half done in it.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
