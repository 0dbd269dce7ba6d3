//! What the kernel's answers mean, and which addresses count. Pure.

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, io, net::IpAddr};

use netlink_packet_core::{DecodeError, NLM_F_DUMP_INTR, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressHeaderFlags, AddressMessage},
};

/// Messages begin at multiples of this (`NLMSG_ALIGNTO`).
const ALIGNED: usize = 4;

/// How a dump ended: whether it is whole, or the kernel's reason why there is none.
pub(super) type Ended = io::Result<bool>;

/// Reads one datagram of what answers the request `sequence`, a dump, and adds the addresses that count. `None`: more is to come.
pub(super) fn read(
    datagram: &[u8],
    sequence: u32,
    addresses: &mut BTreeSet<IpAddr>,
) -> Result<Option<Ended>, DecodeError> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)?;
        let length = usize::try_from(message.header.length).unwrap_or(usize::MAX);
        rest = rest
            .get(length.next_multiple_of(ALIGNED)..)
            .unwrap_or_default();
        if message.header.sequence_number != sequence {
            continue;
        }
        if message.header.flags & NLM_F_DUMP_INTR != 0 {
            return Ok(Some(Ok(false)));
        }
        match message.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(address)) => {
                addresses.extend(counts(&address));
            }
            NetlinkPayload::Error(error) if error.code.is_some() => {
                return Ok(Some(Err(error.to_io())));
            }
            NetlinkPayload::Done(done) if done.code < 0 => {
                let error = io::Error::from_raw_os_error(done.code.saturating_neg());
                return Ok(Some(Err(error)));
            }
            NetlinkPayload::Done(_) => return Ok(Some(Ok(true))),
            _ => {}
        }
    }
    Ok(None)
}

/// The address that a message is about, if traffic can be sent to it.
///
/// kube-proxy takes every address. Not here:
/// - IPv6 link-local ones mean nothing without an interface;
/// - tentative ones, and those that another host has (duplicate address detection, RFC 4862), the
///   kernel does not answer for yet, not even locally. When it does, the list is another one.
///   Optimistic ones (RFC 4429) it answers for;
/// - multicast addresses are on an interface for the sake of a membership (`autojoin`).
///
/// Deprecated addresses count: they still receive, only new connections shall not come from them.
fn counts(message: &AddressMessage) -> Option<IpAddr> {
    // Both flags are in the eight bits that the header has room for.
    let flags = message.header.flags;
    let waits = flags.contains(AddressHeaderFlags::Tentative)
        && !flags.contains(AddressHeaderFlags::Optimistic);
    if waits || flags.contains(AddressHeaderFlags::Dadfailed) {
        return None;
    }
    // Where both are there, of a point-to-point link, `IFA_ADDRESS` is the other end's.
    let local = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            AddressAttribute::Local(address) => Some(*address),
            _ => None,
        });
    let address = local.or_else(|| {
        message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            })
    })?;
    let link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    (!link_local && !address.is_multicast() && !address.is_unspecified()).then_some(address)
}
