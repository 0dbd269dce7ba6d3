//! Tables of kube-proxy's nftables mode, over netlink (`linux/netfilter/nf_tables.h`): whole tables
//! of its own, so that no rule needs to be understood.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use proxy_model::IpFamily;

use super::{Found, Leftover, Mode, Removal};
use proxy_netlink::netfilter::{self as netlink, put_string, request, text};

/// What kube-proxy calls its tables.
const NAME: &str = "kube-proxy";

/// `NFNL_SUBSYS_NFTABLES` in the upper byte of a message's type.
const NFTABLES: u16 = 10 << 8;
const GET_TABLE: u16 = NFTABLES | 1;
const DELETE_TABLE: u16 = NFTABLES | 2;
const GET_CHAIN: u16 = NFTABLES | 4;
const GET_RULE: u16 = NFTABLES | 7;
/// `NFNL_MSG_BATCH_BEGIN` and `…_END`, around what is changed in one transaction.
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// The part of netfilter that a transaction is for.
const OF_NFTABLES: u16 = 10;
/// The attribute that names the table, in messages about tables, chains and rules alike.
const TABLE: u16 = 1;

/// A table of kube-proxy, by its family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Table(IpFamily);

impl Table {
    const fn family(self) -> u8 {
        // As in `NFPROTO_IPV4` and `NFPROTO_IPV6`.
        match self.0 {
            IpFamily::V4 => 2,
            IpFamily::V6 => 10,
        }
    }
}

/// Adds tables of the nftables mode.
pub(super) fn find(found: &mut Found) {
    for table in [Table(IpFamily::V4), Table(IpFamily::V6)] {
        match look(table) {
            Ok(leftover) => found.leftovers.extend(leftover),
            // A kernel without nftables has no tables.
            Err(error) if is_unknown(&error) => {}
            Err(error) => found.problems.push(format!(
                "looking for kube-proxy's table in nftables, {}: {error}; run as root, or with \
                 CAP_NET_ADMIN",
                table.0
            )),
        }
    }
}

fn is_unknown(error: &io::Error) -> bool {
    let unknown = [libc::EINVAL, libc::EOPNOTSUPP, libc::EPROTONOSUPPORT];
    error
        .raw_os_error()
        .is_some_and(|code| unknown.contains(&code))
}

fn look(table: Table) -> io::Result<Option<Leftover>> {
    if count(GET_TABLE, table)? == 0 {
        return Ok(None);
    }
    Ok(Some(Leftover {
        mode: Mode::Nftables,
        family: Some(table.0),
        what: format!("table `{NAME}` of nftables"),
        parts: count(GET_CHAIN, table)?,
        rules: count(GET_RULE, table)?,
        removal: Removal::Table(table),
    }))
}

/// How many tables, chains or rules there are in this table.
fn count(of: u16, table: Table) -> io::Result<usize> {
    // All of the family: the kernel picks by table in some kinds of dump only.
    let all = request(of, NLM_F_DUMP, table.family(), 0, |_| {});
    let mut count = 0;
    netlink::exchange(&mut netlink::open()?, &all, |kind, value| {
        count += usize::from(kind == TABLE && text(value) == NAME);
    })?;
    Ok(count)
}

/// Deletes a table with all that is in it. One that is gone already is no error.
pub(super) fn delete(table: Table) -> Result<(), String> {
    let batch = |message_type| request(message_type, 0, 0, OF_NFTABLES, |_| {});
    let delete = request(DELETE_TABLE, NLM_F_ACK, table.family(), 0, |attributes| {
        put_string(attributes, TABLE, NAME);
    });
    let requests = [batch(BATCH_BEGIN), delete, batch(BATCH_END)].concat();
    match netlink::ask(&requests) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        done => done.map_err(|error| format!("deleting it over netlink: {error}")),
    }
}
