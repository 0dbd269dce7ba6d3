//! A device of the node, and whether a backend serves it.

/// A device that packets from outside may come in by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Whether programs on it serve clients outside.
    pub is_served: bool,
    /// What for, or why not, for people.
    pub reason: String,
}
