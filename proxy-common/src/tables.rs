//! The Service maps, as decisions read them: those of the kernel, or any others in a test.

use crate::{
    affinity::{AffinityKey, AffinityValue, Client, ClientKey},
    counters::Event,
    endpoint::{SetValue, SlotKey, SlotValue},
    frontend::{FrontendKey, FrontendValue},
    node::NodeAddressKey,
    ranges::{RangeKey, RangeValue},
};

/// The Service maps as a program reads them. Each method copies the value out, each word once.
pub trait ServiceTables {
    /// By what a client's endpoint is remembered.
    type Client: Client;

    /// NODE_ADDRS.
    fn is_node_address(&self, key: &NodeAddressKey) -> bool;
    /// FRONTENDS.
    fn frontend(&self, key: &FrontendKey) -> Option<FrontendValue>;
    /// SETS.
    fn set(&self, set: u32) -> Option<SetValue>;
    /// SLOTS.
    fn slot(&self, key: &SlotKey) -> Option<SlotValue>;
    /// MEMBERS: the index of the endpoint's slot, if the endpoint is in the set.
    fn member(&self, set: u32, endpoint: u32) -> Option<u32>;
    /// AFFINITY or CLIENTS.
    fn affinity(&self, key: &Self::Client) -> Option<AffinityValue>;
    /// Writes into it. With `fresh`, only if nothing is there: false if something is.
    fn keep(&self, key: &Self::Client, value: &AffinityValue, fresh: bool) -> bool;
    /// Removes from it.
    fn release(&self, key: &Self::Client);
    /// Sets when an entry of it was used last.
    fn touch(&self, key: &Self::Client, now: u64);
    /// Nanoseconds since boot.
    fn now(&self) -> u64;
    /// A uniformly distributed number.
    fn random(&self) -> u32;
}

/// What is known besides of a socket that dials.
pub trait Dialler: ServiceTables<Client = AffinityKey> {
    /// Who dials: the cookie of the network namespace.
    fn client(&self) -> u64;
    /// Whether that is the node's own network namespace.
    fn is_host(&self) -> bool;
    /// COUNTERS.
    fn count(&self, event: Event);
}

/// What programs read besides that meet clients outside.
pub trait Admitting: ServiceTables<Client = ClientKey> {
    /// RANGES: the longest range that holds all that the key says.
    fn range(&self, key: &RangeKey) -> Option<RangeValue>;
}
