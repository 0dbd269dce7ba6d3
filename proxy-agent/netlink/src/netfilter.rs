//! Questions to netfilter, and whatever answers as it does (`linux/netfilter/nfnetlink.h`). Knows no
//! part of netfilter but by its number.

use std::io;

use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::{
    attributes::each,
    exchange,
    message::{Messages, attributes},
    socket::Socket,
};

/// Connection tracking.
pub const NFNL_SUBSYS_CTNETLINK: u16 = 1;
/// Sets of addresses, as iptables uses them.
pub const NFNL_SUBSYS_IPSET: u16 = 6;
/// Counters of packets that rules name.
pub const NFNL_SUBSYS_ACCT: u16 = 7;

/// A socket that talks with the kernel's netfilter in the network namespace of this thread.
pub fn open() -> io::Result<Socket> {
    Socket::open(NETLINK_NETFILTER)
}

/// Sends requests of which one wants an answer, and waits for that: how it ended.
pub fn ask(requests: &Messages) -> io::Result<()> {
    exchange(&mut open()?, requests.as_bytes(), |_, _| {})
}

/// Sends requests, and shows each attribute of what they are answered, kind and value, until an
/// answer ends it. With an error that the kernel did not answer, the socket is of no more use.
pub fn exchange(
    socket: &mut Socket,
    requests: &[u8],
    mut answered: impl FnMut(u16, &[u8]),
) -> io::Result<()> {
    exchange::exchange(socket, requests, |message| {
        for attribute in each(attributes(message)) {
            let (kind, value) = attribute?;
            answered(kind, value);
        }
        Ok(())
    })?
}
