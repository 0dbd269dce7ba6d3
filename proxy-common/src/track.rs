//! Flows from outside that the programs on devices translate: what is remembered of one
//! (`ConnectionKey`, `ConnectionValue`), and what becomes of a packet (`ingress`, `egress`).
//!
//! ```text
//!                 ingress, destination replaced          egress, source replaced
//! request   DIALLED client:port -> frontend ──> endpoint
//! reply                                            INSIDE endpoint -> client:port ──> frontend
//! ```
//!
//! In between, the stack sees the true client and the true endpoint. A flow is two entries under one
//! serial; one whose endpoint sees this node has two more ([`snat`]). It begins in OPENING, where the kernel
//! makes room by itself, and moves to TRACK when it is answered: nothing there is ever evicted. See
//! `docs/ARCHITECTURE.md`, "Life of a packet from outside".
//!
//! There is no conditional delete, and before Linux 5.12 no compare-and-swap. What is exclusive is
//! made by adding a key that must not be there; whatever is left half is mended by the packets of
//! the flow (`pair`).

mod anew;
mod answer;
mod begin;
mod direct;
pub mod egress;
pub mod ended;
mod entry;
mod foreign;
mod fragment;
mod freed;
mod hooks;
pub mod ingress;
mod open;
mod owner;
pub(crate) mod pair;
pub mod pods;
mod ports;
pub mod reason;
pub mod second;
mod segment;
mod settings;
pub mod snat;
mod source;
pub mod sweep;
#[cfg(test)]
mod tests;

use bytemuck::Zeroable;

use crate::{
    frontend::FrontendValue,
    node::NodeAddressKey,
    packet::{
        Words,
        parse::{Header, Transport},
        quoted::Quoted,
        rewrite::Place,
    },
    track::{reason::Outcome, second::Second},
};
pub use entry::{
    BENEATH, ConnectionKey, ConnectionValue, DIALLED, DIRECT, FOREIGN, INSIDE, MASQUERADED, SNAT,
    TRANSLATED, seen,
};
pub use fragment::{FragmentKey, FragmentValue, Fragments};
pub use settings::{ALONE, LEAVING, PODS_V4, PODS_V6, Prefix, SWEPT_AT_ONCE, Setting, Settings};
pub use source::{LEAST_SOURCE_PORT, MOST_SOURCES, SourceKey, SourceValue};

/// Where a flow is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// Answered flows, until they end.
    Track,
    /// All others, until the kernel needs the room.
    Opening,
}

/// What became of adding an entry.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// It is there now, and was not before.
    Added = 0,
    /// The key is there already.
    Exists,
    /// There is no room.
    Full,
}

/// The maps of flows, as decisions use them. Each method is one step that others may come before or
/// after.
pub trait Connections {
    /// A live entry. It may have been given to another key meanwhile.
    type At: Copy;

    /// The entry of `key`. Its value is copied, each word read once; without an entry `value` stays
    /// as it is.
    fn find(
        &self,
        table: Table,
        key: &ConnectionKey,
        value: &mut ConnectionValue,
    ) -> Option<Self::At>;

    /// Whether there is an entry of `key`.
    fn has(&self, table: Table, key: &ConnectionKey) -> bool;

    /// Whether there is one, with this serial.
    fn has_serial(&self, table: Table, key: &ConnectionKey, serial: u32) -> bool;

    /// Adds an entry if the key is not there.
    fn add(&self, table: Table, key: &ConnectionKey, value: &ConnectionValue) -> Added;

    /// Removes an entry. Whether it was there.
    fn remove(&self, table: Table, key: &ConnectionKey) -> bool;

    /// Writes [`ConnectionValue::last`].
    fn set_last(&self, at: Self::At, last: u32);

    /// Writes [`ConnectionValue::state`].
    fn set_state(&self, at: Self::At, state: u32);

    /// Writes [`ConnectionValue::sequence`].
    fn set_sequence(&self, at: Self::At, sequence: u32);

    /// Writes [`ConnectionValue::acknowledged`].
    fn set_acknowledged(&self, at: Self::At, acknowledged: u32);

    /// Writes [`ConnectionValue::refusal`].
    fn set_refusal(&self, at: Self::At, refusal: u32);

    /// Writes [`ConnectionValue::since`].
    fn set_since(&self, at: Self::At, since: u32);

    /// Changes the number of flows in TRACK.
    fn count_flows(&self, by: i64);

    /// Flows in TRACK.
    fn flows(&self) -> u64;

    /// Seconds since boot.
    fn seconds(&self) -> u32;

    /// A number of SETTINGS.
    fn setting(&self, which: Setting) -> u32;

    /// Whether an address is a pod's, by SETTINGS: see [`Settings::is_pod`].
    fn is_pod(&self, address: &Words) -> bool;

    /// OWN_ADDRS: whether this host has an address, or had it a moment ago.
    fn is_own(&self, address: &NodeAddressKey) -> bool;
}

/// What is known of this node, with a packet at hand.
pub trait Network {
    /// Sets `work.second.device`, by which the first packet of the flow of `work.key` and `work.value` leaves
    /// for its endpoint, or 0 if none leads there; and `work.second.hop`, the next hop, or else the endpoint.
    fn find_way(&self, work: &mut Work);

    /// Whether a socket of this node would get the packets of `work.second.back`. One in TIME-WAIT (RFC 9293)
    /// does not count: nobody waits for what comes for it.
    fn has_socket(&self, work: &mut Work) -> bool;
}

/// What endpoints may see in the place of clients.
pub trait Sources {
    /// SOURCES. Whether there is an entry; its value is copied.
    fn source(&self, key: &SourceKey, value: &mut SourceValue) -> bool;

    /// PORTS: whether the port must not be used.
    fn is_reserved(&self, port: u16) -> bool;
}

/// Seconds since `last`. A clock that another CPU read later is ahead.
#[inline(always)]
const fn idle(now: u32, last: u32) -> u32 {
    let idle = now.wrapping_sub(last);
    if idle > u32::MAX / 2 { 0 } else { idle }
}

/// What is remembered while one packet is looked at. Programs have it in a map: their stack has 512
/// bytes, for all functions that call each other.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// IP header.
    pub header: Header,
    /// Transport header.
    pub transport: Transport,
    /// What an ICMP error is about.
    pub quoted: Quoted,
    /// Where the packet goes, or is to come from.
    pub to: Place,
    /// Key of the entry that the packet is looked up by.
    pub key: ConnectionKey,
    /// Its value.
    pub value: ConnectionValue,
    /// Key of the flow's other entry.
    pub other_key: ConnectionKey,
    /// Its value, as it must be.
    pub other_value: ConnectionValue,
    /// What was found instead.
    pub found: ConnectionValue,
    /// What the packet is for, if it begins a flow.
    pub frontend: FrontendValue,
    /// 1 if that is whole.
    pub frontend_is_whole: u32,
    /// What becomes of such a packet.
    pub outcome: Outcome,
    /// How many endpoints were found to be taken for it.
    pub collisions: u32,
    /// Number of the endpoint of the answered flow that was over in its place; 0 if there was none.
    pub endpoint_before: u32,
    /// What became of the first entry of a flow that begins.
    pub added: Added,
    /// Of a flow whose endpoint sees this node.
    pub second: Second,
}

impl Default for Work {
    /// One that nothing was read into yet.
    fn default() -> Self {
        let value = ConnectionValue::zeroed();
        Self {
            header: Header::NONE,
            transport: Transport::default(),
            quoted: Quoted::NONE,
            to: Place::new([0; 4], 0),
            key: ConnectionKey::zeroed(),
            value,
            other_key: ConnectionKey::zeroed(),
            other_value: value,
            found: value,
            frontend: FrontendValue::zeroed(),
            frontend_is_whole: 0,
            outcome: Outcome::UNTOUCHED,
            collisions: 0,
            endpoint_before: 0,
            added: Added::Added,
            second: Second::none(),
        }
    }
}
