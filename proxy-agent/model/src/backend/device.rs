//! A device of the node, and whether a backend serves it.

/// A device that packets from outside may come in by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Whether programs on it serve clients outside.
    pub is_served: bool,
    /// Whether endpoints on this node see who clients are that would be masqueraded; those on other nodes see
    /// this node.
    pub keeps_clients: bool,
    /// What for, or why not, for people.
    pub reason: String,
}
