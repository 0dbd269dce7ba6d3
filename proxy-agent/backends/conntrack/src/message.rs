//! Requests about connections (`linux/netfilter/nfnetlink_conntrack.h`), as bytes. Pure.

use netlink_packet_core::NLA_F_NESTED;
use proxy_model::IpFamily;

use super::flow::{
    CTA_ID, CTA_PROTO_NUM, CTA_STATUS, CTA_TUPLE_ORIG, CTA_TUPLE_PROTO, CTA_ZONE, IPS_DST_NAT,
    Identity,
};
use proxy_netlink::{
    message::{Head, Messages, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST},
    netfilter::NFNL_SUBSYS_CTNETLINK,
};

const CONNTRACK: u16 = NFNL_SUBSYS_CTNETLINK << 8;
/// `IPCTNL_MSG_CT_NEW`: what a dump consists of.
pub(super) const ENTRY: u16 = CONNTRACK;
const GET: u16 = CONNTRACK | 1;
const DELETE: u16 = CONNTRACK | 2;
/// `IPCTNL_MSG_CT_GET_STATS`.
const STATISTICS: u16 = CONNTRACK | 5;
const CTA_FILTER: u16 = 25;
const CTA_FILTER_ORIG_FLAGS: u16 = 1;
/// Compare the number of the protocol (`CTA_FILTER_F_CTA_PROTO_NUM`).
const PROTOCOL_COUNTS: u32 = 1 << 3;
const CTA_STATUS_MASK: u16 = 26;

/// Asks for all entries of a family that have this protocol. Kernels before 5.8 tell the others,
/// too.
pub(super) fn dump_protocol(family: IpFamily, protocol: u8) -> Messages {
    let head = head(GET, NLM_F_DUMP, number(Some(family)));
    Messages::one(head, |attributes| {
        attributes.nested(CTA_TUPLE_ORIG, |tuple| {
            tuple.nested(CTA_TUPLE_PROTO, |of_protocol| {
                of_protocol.bytes(CTA_PROTO_NUM, &[protocol]);
            });
        });
        attributes.nested(CTA_FILTER, |filter| {
            filter.bytes(CTA_FILTER_ORIG_FLAGS, &PROTOCOL_COUNTS.to_ne_bytes());
        });
    })
}

/// Asks for all entries whose destination is translated. Kernels before 5.15 tell the others, too.
pub(super) fn dump_translated() -> Messages {
    Messages::one(head(GET, NLM_F_DUMP, number(None)), |attributes| {
        attributes.bytes(CTA_STATUS, &IPS_DST_NAT.to_be_bytes());
        attributes.bytes(CTA_STATUS_MASK, &IPS_DST_NAT.to_be_bytes());
    })
}

/// Asks how many entries there are: the cheapest question.
pub(super) fn statistics() -> Messages {
    Messages::one(head(STATISTICS, NLM_F_ACK, number(None)), |_| {})
}

/// Asks to delete an entry, and for an answer in any case.
pub(super) fn delete(requests: &mut Messages, family: IpFamily, identity: Identity<'_>) {
    let head = head(DELETE, NLM_F_ACK, number(Some(family)));
    requests.add(head, |attributes| {
        attributes.bytes(CTA_TUPLE_ORIG | NLA_F_NESTED, identity.tuple);
        if let Some(zone) = identity.zone {
            attributes.bytes(CTA_ZONE, zone);
        }
        attributes.bytes(CTA_ID, identity.id);
    });
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

const fn head(kind: u16, flags: u16, family: u8) -> Head {
    Head {
        kind,
        flags: flags | NLM_F_REQUEST,
        family,
        resource: 0,
    }
}
