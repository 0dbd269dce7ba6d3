//! Route netlink: what devices, addresses and routes this network namespace has, which filters are on
//! a device, and that something of it changed. Knows no Service, and no reason to choose a device.
//!
//! ```text
//! RouteSocket ──> dumps: links, addresses, routes (nexthops), qdiscs, filters
//!             └─> changes of one qdisc or filter
//! Changes ──────> something is different now
//! ```
//! Numbers are as this machine writes them, and each kind of message begins with a structure of its
//! own (rtnetlink(7)).

mod addresses;
mod changes;
mod filters;
mod links;
mod nexthops;
#[expect(
    missing_docs,
    reason = "the kernel's own names, which its headers explain"
)]
pub mod numbers;
mod qdiscs;
mod routes;
#[cfg(test)]
mod tests;

use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;

use crate::{
    attributes::{Attributes, Read},
    exchange::exchange,
    message::{Messages, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, is_interrupted},
    socket::Socket,
};
pub use addresses::Address;
pub use changes::{Changes, Waker};
pub use filters::{BpfFilter, Filter, FilterPlace};
pub use links::Link;
pub use nexthops::Hop;
pub use qdiscs::{Direction, Qdisc};
pub use routes::Route;

/// How often a dump is begun anew because what is dumped changed meanwhile.
const ATTEMPTS: usize = 16;

/// Asks one thing at a time, in the network namespace of the thread that asked first.
#[derive(Debug, Default)]
pub struct RouteSocket {
    /// None before the first question, and after an answer that was lost.
    socket: Option<Socket>,
}

impl RouteSocket {
    /// Changes one thing: how the kernel answered.
    fn change(
        &mut self,
        kind: u16,
        flags: u16,
        begins: &[u8],
        fill: impl FnOnce(&mut Attributes<'_>),
    ) -> io::Result<()> {
        let mut messages = Messages::default();
        let flags = flags | NLM_F_REQUEST | NLM_F_ACK;
        messages.add_beginning(kind, flags, begins, fill);
        self.ask(&messages, |_, _| {}).map(drop)
    }

    /// All objects of a type, read by `one` from what their messages begin with and their attributes.
    /// What `one` gives nothing for is left out. Begun anew where they changed meanwhile.
    fn dump<T>(
        &mut self,
        kind: u16,
        begins: &[u8],
        fill: impl Fn(&mut Attributes<'_>),
        mut one: impl FnMut(&[u8], Read<'_>) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        let mut messages = Messages::default();
        messages.add_beginning(kind, NLM_F_REQUEST | NLM_F_DUMP, begins, fill);
        for _ in 0..ATTEMPTS {
            let mut all = Vec::new();
            let length = begins.len();
            let whole = self.ask(&messages, |_, payload| {
                if let Some((head, attributes)) = payload.split_at_checked(length) {
                    all.extend(one(head, Read(attributes)));
                }
            })?;
            if whole {
                return Ok(all);
            }
        }
        Err(io::Error::other(
            "what the kernel lists changes faster than it can be read",
        ))
    }

    /// Sends a request and shows type and payload of each answer. Whether they are all.
    fn ask(
        &mut self,
        messages: &Messages,
        mut answered: impl FnMut(u16, &[u8]),
    ) -> io::Result<bool> {
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => Socket::open_strict(NETLINK_ROUTE)?,
        };
        let mut whole = true;
        let ended = exchange(&mut socket, messages.as_bytes(), |message| {
            whole &= !is_interrupted(message);
            answered(message.message_type(), message.payload());
            Ok(())
        })?;
        self.socket = Some(socket);
        ended.map(|()| whole)
    }
}

/// The number of 32 bits at `at` in what a message begins with.
fn word(head: &[u8], at: usize) -> u32 {
    let bytes = head.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    u32::from_ne_bytes(bytes.unwrap_or_default())
}

/// The number of 16 bits at `at` in what a message begins with.
fn half(head: &[u8], at: usize) -> u16 {
    let bytes = head.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
    u16::from_ne_bytes(bytes.unwrap_or_default())
}
