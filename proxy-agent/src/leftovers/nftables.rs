//! Tables of kube-proxy's nftables mode, over netlink (`linux/netfilter/nf_tables.h`): whole tables
//! of its own, so that no rule needs to be understood.

use std::io;

use proxy_model::IpFamily;

use super::{Found, Leftover, Mode, Removal, error::RemoveError};
use proxy_netlink::{
    attributes::text,
    message::{Head, Messages, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST},
    netfilter::{ask, exchange, open},
    nf_tables as abi,
    ruleset::is_unknown,
};

/// What kube-proxy calls its tables.
const NAME: &str = "kube-proxy";

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

    const fn head(self, kind: u16, flags: u16) -> Head {
        Head {
            kind: abi::NFNL_SUBSYS_NFTABLES << 8 | kind,
            flags: flags | NLM_F_REQUEST,
            family: self.family(),
            resource: 0,
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

fn look(table: Table) -> io::Result<Option<Leftover>> {
    if count(abi::NFT_MSG_GETTABLE, table)? == 0 {
        return Ok(None);
    }
    Ok(Some(Leftover {
        mode: Mode::Nftables,
        family: Some(table.0),
        what: format!("table `{NAME}` of nftables"),
        parts: count(abi::NFT_MSG_GETCHAIN, table)?,
        rules: count(abi::NFT_MSG_GETRULE, table)?,
        removal: Removal::Table(table),
    }))
}

/// How many tables, chains or rules there are in this table.
fn count(of: u16, table: Table) -> io::Result<usize> {
    // All of the family: the kernel picks by table in some kinds of dump only.
    let all = Messages::one(table.head(of, NLM_F_DUMP), |_| {});
    let mut count = 0;
    exchange(&mut open()?, all.as_bytes(), |kind, value| {
        count += usize::from(kind == TABLE && text(value) == NAME);
    })?;
    Ok(count)
}

/// The head of what begins or ends a transaction.
pub(super) fn around(kind: u16) -> Head {
    Head {
        kind,
        flags: NLM_F_REQUEST,
        resource: abi::NFNL_SUBSYS_NFTABLES,
        ..Head::default()
    }
}

/// Deletes a table with all that is in it. One that is gone already is no error.
pub(super) fn delete(table: Table) -> Result<(), RemoveError> {
    let mut requests = Messages::one(around(abi::NFNL_MSG_BATCH_BEGIN), |_| {});
    requests.add(table.head(abi::NFT_MSG_DELTABLE, NLM_F_ACK), |attributes| {
        attributes.text(TABLE, NAME);
    });
    requests.add(around(abi::NFNL_MSG_BATCH_END), |_| {});
    match ask(&requests) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        done => done.map_err(|error| RemoveError::Kernel {
            what: "deleting it over netlink",
            error,
        }),
    }
}
