//! Which rows changed between successive full states. Pure; knows nothing of Services.

use std::collections::BTreeMap;

/// Keeps rows that follow from a state, and finds what the next state changes in them.
///
/// For backends that turn the whole state into rows of their own (rules, table entries, lines of a
/// file) and want to write only those that differ:
///
/// ```
/// use proxy_api::DiffStore;
///
/// let mut store = DiffStore::new();
/// // The first state: everything is new.
/// let mut rows = store.begin();
/// rows.put("10.96.0.1:80", vec!["10.244.0.5:8080"]);
/// rows.put("10.96.0.2:53", vec!["10.244.0.9:53"]);
/// let changes = rows.commit();
/// assert_eq!(changes.upserts.len(), 2);
///
/// // The second: one row has another value, one is not put again.
/// let mut rows = store.begin();
/// rows.put("10.96.0.1:80", vec!["10.244.0.5:8080", "10.244.1.5:8080"]);
/// let changes = rows.commit();
/// assert_eq!(changes.upserts, ["10.96.0.1:80"]);
/// assert_eq!(changes.deletes, ["10.96.0.2:53"]);
/// assert_eq!(store.get("10.96.0.1:80").map(Vec::len), Some(2));
/// ```
#[derive(Debug, Clone)]
pub struct DiffStore<K, V> {
    rows: BTreeMap<K, V>,
}

/// The rows of the next state, while they are collected. If dropped without a commit, they change
/// nothing.
#[derive(Debug)]
pub struct Rows<'a, K, V> {
    store: &'a mut DiffStore<K, V>,
    next: BTreeMap<K, V>,
}

/// Keys of rows that changed. Upserts are to be applied first, then deletes, each in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowChanges<K> {
    /// Rows that are new or have another value, in order.
    pub upserts: Vec<K>,
    /// Rows that are gone, in order.
    pub deletes: Vec<K>,
}

impl<K, V> Default for DiffStore<K, V> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone, V: PartialEq> DiffStore<K, V> {
    /// A store without rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins the next state, without any row.
    pub fn begin(&mut self) -> Rows<'_, K, V> {
        Rows {
            store: self,
            next: BTreeMap::new(),
        }
    }

    /// The row of the last commit.
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.rows.get(key)
    }

    /// All rows of the last commit, in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (&K, &V)> {
        self.rows.iter()
    }

    /// Forgets all rows: the next commit names all of its own as upserts. For a backend that no
    /// longer knows what is in force.
    pub fn forget(&mut self) {
        self.rows.clear();
    }
}

impl<K: Ord + Clone, V: PartialEq> Rows<'_, K, V> {
    /// Adds a row, or replaces the one that was put under this key.
    pub fn put(&mut self, key: K, value: V) {
        self.next.insert(key, value);
    }

    /// The row under `key`, made by `value` if there is none: for rows that several Service ports
    /// add to.
    pub fn entry(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        self.next.entry(key).or_insert_with(value)
    }

    /// Makes these rows the present ones, and returns which changed.
    pub fn commit(self) -> RowChanges<K> {
        let Self { store, next } = self;
        let is_new = |key: &K, value: &V| store.rows.get(key) != Some(value);
        let upserts = next.iter().filter(|(key, value)| is_new(key, value));
        let deletes = store.rows.keys().filter(|key| !next.contains_key(key));
        let changes = RowChanges {
            upserts: upserts.map(|(key, _)| key.clone()).collect(),
            deletes: deletes.cloned().collect(),
        };
        store.rows = next;
        changes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn changes_lead_from_each_state_to_the_next(
            states in prop::collection::vec(prop::collection::btree_map(0_u8..20, 0_u8..3, 0..12), 1..8),
        ) {
            let mut store = DiffStore::new();
            let mut followed = BTreeMap::new();
            for state in states {
                let mut rows = store.begin();
                for (key, value) in &state {
                    rows.put(*key, *value);
                }
                let changes = rows.commit();
                for key in &changes.upserts {
                    let before = followed.insert(*key, state[key]);
                    prop_assert_ne!(before, Some(state[key]), "an upsert without a change");
                }
                for key in &changes.deletes {
                    prop_assert!(followed.remove(key).is_some());
                }
                prop_assert_eq!(&followed, &state);
                prop_assert!(changes.upserts.is_sorted() && changes.deletes.is_sorted());
            }
        }
    }

    #[test]
    fn rows_that_are_not_committed_change_nothing() {
        let mut store = DiffStore::new();
        let mut rows = store.begin();
        rows.put("a", 1);
        rows.commit();
        store.begin().put("b", 2);
        assert_eq!(store.rows().collect::<Vec<_>>(), [(&"a", &1)]);
    }

    #[test]
    fn several_can_add_to_a_row() {
        let mut store = DiffStore::new();
        let mut rows = store.begin();
        for (key, value) in [("a", 1), ("a", 2), ("b", 3)] {
            rows.entry(key, Vec::new).push(value);
        }
        rows.commit();
        assert_eq!(store.get("a"), Some(&vec![1, 2]));
    }

    #[test]
    fn after_forgetting_everything_is_new() {
        let mut store = DiffStore::new();
        for _ in 0..2 {
            let mut rows = store.begin();
            rows.put("a", 1);
            assert_eq!(rows.commit().upserts, ["a"]);
            store.forget();
        }
    }
}
