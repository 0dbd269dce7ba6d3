//! What the programs keep of the second translation of a flow ([`snat`](super::snat)) while they look at one packet.

use bytemuck::Zeroable as _;

use super::{ConnectionKey, ConnectionValue, SourceValue, reason::Outcome};
use crate::packet::Words;

/// An entry of a flow, with its key.
pub type Entry = (ConnectionKey, ConnectionValue);

/// What is remembered of the second translation while one packet is looked at.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Second {
    /// Key of the entry of requests, at egress.
    pub forward: ConnectionKey,
    /// Its value.
    pub forward_value: ConnectionValue,
    /// Key of the entry of replies, at ingress.
    pub back: ConnectionKey,
    /// Its value.
    pub back_value: ConnectionValue,
    /// What was found instead.
    pub found: ConnectionValue,
    /// Entries of another flow, which may be over: that of its requests between both translations, that of its
    /// replies as they leave, and that of its requests as they come.
    pub others: [Entry; 3],
    /// The device by which requests leave.
    pub device: u32,
    /// The next hop there.
    pub hop: Words,
    /// One of the device's addresses.
    pub source: SourceValue,
    /// How near the address is that was chosen of these; 0 if none was.
    pub near: u32,
    /// The first of the ports that are chosen from,
    pub first_port: u32,
    /// how many these are,
    pub ports: u32,
    /// and which one is looked at next.
    pub start: u32,
    /// Something has the port that was looked at last, or not: 1 or 0.
    pub is_used: u32,
    /// What became of the attempt to take a port.
    pub outcome: Outcome,
    /// What the kernel is asked, and answers.
    pub asked: [u64; 8],
}

impl Second {
    /// Nothing was looked up yet.
    pub(super) fn none() -> Self {
        let (key, value) = (ConnectionKey::zeroed(), ConnectionValue::zeroed());
        Self {
            forward: key,
            forward_value: value,
            back: key,
            back_value: value,
            found: value,
            others: [(key, value); 3],
            device: 0,
            hop: [0; 4],
            source: SourceValue::zeroed(),
            near: 0,
            first_port: 0,
            ports: 0,
            start: 0,
            is_used: 0,
            outcome: Outcome::UNTOUCHED,
            asked: [0; 8],
        }
    }
}
