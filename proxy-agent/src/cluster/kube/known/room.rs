//! How many objects of one kind are kept, and which were left out for want of room. Pure.
//!
//! A server that goes wrong, or a cluster beyond all that was thought of, must not take the memory
//! of a node. What is known stays known and is followed; what is new waits until something goes.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, Hash, RandomState},
};

use crate::cluster::kube::counters::ObjectKind;

/// As many that were left out are told apart; what comes beyond is as if it were one.
const MOST_LEFT_OUT: usize = 100_000;

/// Room for objects and their parts.
pub(super) struct Room {
    kind: ObjectKind,
    most: usize,
    taken: usize,
    /// What became free since the last list.
    freed: usize,
    /// By the hash of their keys.
    left_out: HashSet<u64>,
    hasher: RandomState,
    /// It was told that some are left out.
    told: bool,
}

impl Room {
    pub(super) fn new(kind: ObjectKind, most: usize) -> Self {
        Self {
            kind,
            most,
            taken: 0,
            freed: 0,
            left_out: HashSet::new(),
            hasher: RandomState::new(),
            told: false,
        }
    }

    /// Takes room for `weight` in place of `before`; what has none yet is left out if there is not
    /// enough. Returns whether there is.
    pub(super) fn take<K: Hash>(&mut self, key: &K, before: Option<usize>, weight: usize) -> bool {
        if before.is_none() && self.taken + weight > self.most {
            if self.left_out.len() < MOST_LEFT_OUT {
                self.left_out.insert(self.hasher.hash_one(key));
            }
            return false;
        }
        self.taken = self.taken - before.unwrap_or_default() + weight;
        self.freed += before.unwrap_or_default().saturating_sub(weight);
        self.forget(key);
        true
    }

    /// An object is gone that took `weight`.
    pub(super) fn give(&mut self, weight: usize) {
        self.taken -= weight;
        self.freed += weight;
    }

    /// An object is gone, be it one that was left out.
    pub(super) fn forget<K: Hash>(&mut self, key: &K) {
        if !self.left_out.is_empty() {
            self.left_out.remove(&self.hasher.hash_one(key));
        }
    }

    /// A list begins, which tells anew what there is.
    pub(super) fn begin_list(&mut self) {
        self.left_out.clear();
        self.freed = 0;
    }

    /// How many are left out.
    pub(super) fn left_out(&self) -> usize {
        self.left_out.len()
    }

    /// Whether so much became free that it is worth a list to see what was left out.
    pub(super) fn is_back(&self) -> bool {
        !self.left_out.is_empty() && self.freed > self.most / 100
    }

    /// What is to be said of it now, if that is something else than before; empty if all fit.
    pub(super) fn news(&mut self) -> Option<Vec<String>> {
        let Self { kind, most, .. } = *self;
        let full = !self.left_out.is_empty();
        if std::mem::replace(&mut self.told, full) == full {
            return None;
        }
        if !full {
            tracing::info!(%kind, "objects fit again");
            return Some(Vec::new());
        }
        let text = format!(
            "there are more than the limit: {most} of them, counting their ports and endpoints, \
             are kept; known ones stay in force and are followed, and new ones are left out until \
             others go"
        );
        tracing::error!(%kind, text, "too many objects");
        Some(vec![text])
    }
}
