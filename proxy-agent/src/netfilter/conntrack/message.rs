//! Requests to conntrack netlink, as bytes (`linux/netfilter/nfnetlink.h`). Pure.

use netlink_packet_core::{
    Emitable as _, NLA_ALIGNTO, NLA_F_NESTED, NLA_HEADER_SIZE, NLM_F_ACK, NLM_F_DUMP,
    NLM_F_REQUEST, NetlinkHeader,
};
use proxy_model::IpFamily;

use super::flow::{
    CTA_ID, CTA_PROTO_NUM, CTA_STATUS, CTA_TUPLE_ORIG, CTA_TUPLE_PROTO, CTA_ZONE, IPS_DST_NAT,
    Identity,
};

/// `NFNL_SUBSYS_CTNETLINK` in the upper byte of a message's type.
const CONNTRACK: u16 = 1 << 8;
/// `IPCTNL_MSG_CT_NEW`: what a dump consists of.
pub(super) const ENTRY: u16 = CONNTRACK;
const GET: u16 = CONNTRACK | 1;
const DELETE: u16 = CONNTRACK | 2;
/// Bytes of a netlink header.
const HEADER: usize = 16;
/// Bytes of `struct nfgenmsg`, which comes before the attributes.
pub(super) const NETFILTER_HEADER: usize = 4;

const CTA_FILTER: u16 = 25;
const CTA_FILTER_ORIG_FLAGS: u16 = 1;
/// Compare the number of the protocol (`CTA_FILTER_F_CTA_PROTO_NUM`).
const PROTOCOL_COUNTS: u32 = 1 << 3;
const CTA_STATUS_MASK: u16 = 26;

/// Asks for all entries of a family that have this protocol. Kernels before 5.8 tell the others,
/// too.
pub(super) fn dump_protocol(family: IpFamily, protocol: u8) -> Vec<u8> {
    message(GET, NLM_F_DUMP, number(Some(family)), |attributes| {
        nest(attributes, CTA_TUPLE_ORIG, |tuple| {
            nest(tuple, CTA_TUPLE_PROTO, |of_protocol| {
                put(of_protocol, CTA_PROTO_NUM, &[protocol]);
            });
        });
        nest(attributes, CTA_FILTER, |filter| {
            put(
                filter,
                CTA_FILTER_ORIG_FLAGS,
                &PROTOCOL_COUNTS.to_ne_bytes(),
            );
        });
    })
}

/// Asks for all entries whose destination is translated. Kernels before 5.15 tell the others, too.
pub(super) fn dump_translated() -> Vec<u8> {
    message(GET, NLM_F_DUMP, number(None), |attributes| {
        put(attributes, CTA_STATUS, &IPS_DST_NAT.to_be_bytes());
        put(attributes, CTA_STATUS_MASK, &IPS_DST_NAT.to_be_bytes());
    })
}

/// Asks to delete an entry, and for an answer in any case.
pub(super) fn delete(family: IpFamily, identity: Identity<'_>) -> Vec<u8> {
    message(DELETE, NLM_F_ACK, number(Some(family)), |attributes| {
        put(attributes, CTA_TUPLE_ORIG | NLA_F_NESTED, identity.tuple);
        if let Some(zone) = identity.zone {
            put(attributes, CTA_ZONE, zone);
        }
        put(attributes, CTA_ID, identity.id);
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the families have the numbers 0, 2 and 10"
)]
const fn number(family: Option<IpFamily>) -> u8 {
    match family {
        None => libc::AF_UNSPEC as u8,
        Some(IpFamily::V4) => libc::AF_INET as u8,
        Some(IpFamily::V6) => libc::AF_INET6 as u8,
    }
}

fn message(
    message_type: u16,
    flags: u16,
    family: u8,
    attributes: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    // Family, version 0, and a resource that connections have none of.
    bytes.extend([family, 0, 0, 0]);
    attributes(&mut bytes);
    let mut header = NetlinkHeader::default();
    header.length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    header.message_type = message_type;
    header.flags = NLM_F_REQUEST | flags;
    header.emit(&mut bytes[..HEADER]);
    bytes
}

/// Appends an attribute and what pads it.
fn put(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    // The longest is a tuple: less than 100 bytes.
    let length = u16::try_from(NLA_HEADER_SIZE + value.len()).unwrap_or(u16::MAX);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(NLA_ALIGNTO), 0);
}

/// Appends an attribute that consists of others.
fn nest(bytes: &mut Vec<u8>, kind: u16, inner: impl FnOnce(&mut Vec<u8>)) {
    let mut value = Vec::new();
    inner(&mut value);
    put(bytes, kind | NLA_F_NESTED, &value);
}
