//! What the cluster holds, and what it held: all objects under one counter of versions, and the
//! changes since the last time that history was cut.
//!
//! Knows nothing of requests or connections. Several servers may serve one store.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use anyhow::Result;
use serde_json::Value;

use super::{
    kind::Kind,
    object::{Happened, Object},
    selector::Selector,
};

/// How many changes a store remembers unless told otherwise.
const HISTORY: usize = 10_000;

/// The first version that is given out: a real cluster has seen changes before its first Service.
const FIRST_VERSION: u64 = 200;

/// A version from before history begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expired {
    /// The oldest version that is still known.
    pub(super) oldest: u64,
}

/// All objects.
#[derive(Debug)]
pub(super) struct Store {
    objects: BTreeMap<(Kind, String), Arc<Object>>,
    history: VecDeque<Change>,
    version: u64,
    /// Changes up to this version are forgotten.
    forgotten: u64,
}

#[derive(Debug)]
struct Change {
    version: u64,
    kind: Kind,
    before: Option<Arc<Object>>,
    after: Option<Arc<Object>>,
}

impl Store {
    pub(super) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            version: FIRST_VERSION,
            forgotten: FIRST_VERSION,
        }
    }

    /// The version of the last change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Creates or replaces an object; gives its version.
    pub(super) fn apply(&mut self, value: &Value) -> Result<u64> {
        let (kind, namespace, name) = Object::place(value)?;
        let key = (kind, Object::key(&namespace, &name));
        let before = self.objects.get(&key).cloned();
        let object = Arc::new(Object::new(value, self.version + 1, before.as_deref())?);
        Ok(self.put(key, object))
    }

    /// Creates or replaces an object by one that is sent as the JSON value `item`.
    pub(super) fn apply_raw(&mut self, place: (Kind, String, String), item: &str) -> u64 {
        let key = (place.0, Object::key(&place.1, &place.2));
        let object = Arc::new(Object::raw(place, self.version + 1, item));
        self.put(key, object)
    }

    fn put(&mut self, key: (Kind, String), object: Arc<Object>) -> u64 {
        let before = self.objects.insert(key, Arc::clone(&object));
        self.note(object.kind, before, Some(object))
    }

    /// Deletes an object; gives the version of the deletion, or `None` if there is no such one.
    pub(super) fn delete(&mut self, kind: Kind, namespace: &str, name: &str) -> Option<u64> {
        let before = self.objects.remove(&(kind, Object::key(namespace, name)))?;
        Some(self.note(kind, Some(before), None))
    }

    fn note(&mut self, kind: Kind, before: Option<Arc<Object>>, after: Option<Arc<Object>>) -> u64 {
        self.version += 1;
        self.history.push_back(Change {
            version: self.version,
            kind,
            before,
            after,
        });
        if self.history.len() > HISTORY {
            self.forget_first();
        }
        self.version
    }

    fn forget_first(&mut self) {
        if let Some(change) = self.history.pop_front() {
            self.forgotten = change.version;
        }
    }

    /// Forgets all history: only the present version is known.
    pub(super) fn compact(&mut self) {
        self.history.clear();
        self.forgotten = self.version;
    }

    /// Forgets that there ever were versions: counts from the start again, as a cluster does that
    /// is restored from a backup. Objects stay.
    pub(super) fn start_over(&mut self) {
        let objects = std::mem::take(&mut self.objects);
        *self = Self::new();
        self.version -= FIRST_VERSION / 2;
        self.objects = objects
            .into_iter()
            .map(|(key, object)| {
                self.version += 1;
                (key, Arc::new(object.renumbered(self.version)))
            })
            .collect();
        self.forgotten = self.version;
    }

    /// Counts a change that is none of the kinds served here.
    pub(super) fn skip_version(&mut self) {
        self.version += 1;
    }

    pub(super) fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        self.objects.get(&(kind, Object::key(namespace, name)))
    }

    /// Everything there is.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.values()
    }

    /// What `selector` selects among the objects of `kind` after the key `after`, in order.
    pub(super) fn select(
        &self,
        kind: Kind,
        selector: &Selector,
        after: &str,
    ) -> impl Iterator<Item = &Arc<Object>> {
        let from = if after.is_empty() {
            Bound::Included((kind, String::new()))
        } else {
            Bound::Excluded((kind, after.to_owned()))
        };
        self.objects
            .range((from, Bound::Unbounded))
            .take_while(move |((other, _), _)| *other == kind)
            .map(|(_, object)| object)
            .filter(move |object| selector.accepts(object))
    }

    /// Like [`Store::select`], of the objects as they were at `version`.
    pub(super) fn select_at(
        &self,
        version: u64,
        kind: Kind,
        selector: &Selector,
        after: &str,
    ) -> Result<Vec<Arc<Object>>, Expired> {
        self.check(version)?;
        let mut then: BTreeMap<String, Arc<Object>> = self
            .select(kind, &Selector::default(), "")
            .map(|object| (Object::key(&object.namespace, &object.name), object))
            .map(|(key, object)| (key, Arc::clone(object)))
            .collect();
        let undo = self.history.iter().rev();
        for change in undo.take_while(|change| change.version > version) {
            if change.kind != kind {
                continue;
            }
            match (&change.before, &change.after) {
                (Some(before), _) => {
                    let key = Object::key(&before.namespace, &before.name);
                    then.insert(key, Arc::clone(before));
                }
                (None, Some(after)) => {
                    then.remove(&Object::key(&after.namespace, &after.name));
                }
                (None, None) => {}
            }
        }
        let selected = then
            .into_iter()
            .filter(|(key, object)| key.as_str() > after && selector.accepts(object));
        Ok(selected.map(|(_, object)| object).collect())
    }

    /// Whether the changes after `version` are all known.
    pub(super) fn check(&self, version: u64) -> Result<(), Expired> {
        if version < self.forgotten {
            return Err(Expired {
                oldest: self.forgotten,
            });
        }
        Ok(())
    }

    /// The lines of what happened, after the version `after` and up to `until`, to the objects
    /// of `kind` that `selector` selects. One that ceases to be selected is told as deleted.
    pub(super) fn events(
        &self,
        after: u64,
        until: u64,
        kind: Kind,
        selector: &Selector,
    ) -> Result<Vec<Vec<u8>>, Expired> {
        self.check(after)?;
        let first = self
            .history
            .partition_point(|change| change.version <= after);
        let mut lines = Vec::new();
        for change in self.history.range(first..) {
            if change.version > until || change.kind != kind {
                continue;
            }
            let selected = |object: &&Arc<Object>| selector.accepts(object);
            let before = change.before.as_ref().filter(selected);
            let after = change.after.as_ref().filter(selected);
            let (happened, object) = match (before, after) {
                (None, None) => continue,
                (None, Some(after)) => (Happened::Added, after),
                (Some(_), Some(after)) => (Happened::Modified, after),
                (Some(before), None) => (Happened::Deleted, before),
            };
            let mut line = Vec::new();
            object.write_event(happened, change.version, &mut line);
            lines.push(line);
        }
        Ok(lines)
    }
}
