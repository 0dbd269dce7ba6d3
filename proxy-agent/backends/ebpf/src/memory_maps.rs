//! Service maps in memory: what `render` writes to, and what the kernel programs' decisions are
//! tested against.

use std::collections::BTreeMap;

use super::entry::{Entries, Entry, Key, MapError, ServiceMaps};

/// Service maps in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryMaps {
    /// The entries.
    pub entries: BTreeMap<Key, Entry>,
    /// See [`ServiceMaps::reserved_numbers`].
    pub reserved: u32,
}

impl ServiceMaps for MemoryMaps {
    fn put(&mut self, entry: &Entry) -> Result<(), MapError> {
        self.entries.insert(entry.key(), *entry);
        Ok(())
    }

    fn remove(&mut self, key: &Key) -> Result<(), MapError> {
        self.entries.remove(key);
        Ok(())
    }

    fn entries(&self) -> Result<Entries, MapError> {
        Ok(self.entries.values().copied().collect())
    }

    fn reserved_numbers(&self) -> Result<u32, MapError> {
        Ok(self.reserved)
    }

    fn reserve_numbers(&mut self, end: u32) -> Result<(), MapError> {
        self.reserved = end;
        Ok(())
    }
}
