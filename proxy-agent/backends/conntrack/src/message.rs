//! Requests about connections (`linux/netfilter/nfnetlink_conntrack.h`), as bytes. Pure.

use netlink_packet_core::{NLA_F_NESTED, NLM_F_ACK, NLM_F_DUMP};
use proxy_model::IpFamily;

use super::flow::{
    CTA_ID, CTA_PROTO_NUM, CTA_STATUS, CTA_TUPLE_ORIG, CTA_TUPLE_PROTO, CTA_ZONE, IPS_DST_NAT,
    Identity,
};
use proxy_netlink::netfilter::{nest, put, request};

/// `NFNL_SUBSYS_CTNETLINK` in the upper byte of a message's type.
const CONNTRACK: u16 = 1 << 8;
/// `IPCTNL_MSG_CT_NEW`: what a dump consists of.
pub(super) const ENTRY: u16 = CONNTRACK;
const GET: u16 = CONNTRACK | 1;
const DELETE: u16 = CONNTRACK | 2;
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
    request(message_type, flags, family, 0, attributes)
}
