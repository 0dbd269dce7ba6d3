//! A hash table of the kernel, in memory.

use std::{collections::HashMap, vec::Vec};

use crate::track::{Added, ConnectionKey, ConnectionValue};

/// One of TRACK and OPENING. The memory of an entry stays when the entry goes, as in the kernel.
#[derive(Debug, Clone, Default)]
pub struct Entries {
    at: HashMap<ConnectionKey, usize>,
    memory: Vec<ConnectionValue>,
    free: Vec<usize>,
    /// Keys in the order in which they were used.
    keys: Vec<ConnectionKey>,
    /// Most entries; 0 for any number.
    pub room: usize,
    /// Room is made by what was not used for the longest time.
    evicts: bool,
    /// The memory of an entry is given to the next one, also to that of another key.
    pub recycles: bool,
}

impl Entries {
    /// Without entries, and with room for any number.
    pub fn new(evicts: bool) -> Self {
        Self {
            evicts,
            recycles: true,
            ..Self::default()
        }
    }

    /// What the entry of `key` holds. It is not used by that.
    pub fn get(&self, key: &ConnectionKey) -> Option<ConnectionValue> {
        self.at.get(key).map(|at| self.memory[*at])
    }

    /// Where the entry of `key` is, and what it holds.
    pub fn find(&mut self, key: &ConnectionKey) -> Option<(usize, ConnectionValue)> {
        let at = *self.at.get(key)?;
        if self.evicts {
            self.keys.retain(|one| one != key);
            self.keys.push(*key);
        }
        Some((at, self.memory[at]))
    }

    /// Writes to memory, whoever it is given to by now.
    pub fn write(&mut self, at: usize, act: impl FnOnce(&mut ConnectionValue)) {
        act(&mut self.memory[at]);
    }

    /// All keys.
    pub fn keys(&self) -> Vec<ConnectionKey> {
        self.keys.clone()
    }

    /// Adds an entry if the key is not there.
    pub fn add(&mut self, key: ConnectionKey, value: ConnectionValue) -> Added {
        if self.at.contains_key(&key) {
            return Added::Exists;
        }
        if self.room != 0 && self.keys.len() >= self.room {
            if !self.evicts {
                return Added::Full;
            }
            let oldest = self.keys[0];
            self.remove(&oldest);
        }
        let at = if let Some(at) = self.free.pop().filter(|_| self.recycles) {
            self.memory[at] = value;
            at
        } else {
            self.memory.push(value);
            self.memory.len() - 1
        };
        self.keys.push(key);
        self.at.insert(key, at);
        Added::Added
    }

    /// Removes an entry. Whether it was there.
    pub fn remove(&mut self, key: &ConnectionKey) -> bool {
        let Some(at) = self.at.remove(key) else {
            return false;
        };
        self.keys.retain(|one| one != key);
        self.free.push(at);
        true
    }
}
