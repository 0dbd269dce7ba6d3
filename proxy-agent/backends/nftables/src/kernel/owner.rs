//! Tables of ours that another process has made its own (`flags owner`, Linux 5.12): only that process
//! can change them, and to all others the kernel says the same as to those without rights.

use std::fmt;

use proxy_model::IpFamily;
use proxy_netlink::{message::NLM_F_ACK, nf_tables as abi};

use super::{
    FAMILIES,
    expressions::nfproto,
    socket::{Cause, KernelError, Netlink, question},
};
use crate::text::Words;

/// A table that belongs to another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owned {
    table: &'static str,
    family: IpFamily,
    port: u32,
}

impl fmt::Display for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ip, table) = (Words(self.family).ip(), self.table);
        write!(
            f,
            "table {ip} {table} belongs to another process, which owns it (netlink port {}, mostly \
             its process id; `nft list table {ip} {table}` names its program): end that process",
            self.port
        )
    }
}

/// Why the kernel said that rights are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// A table is another process's.
    Owner(Owned),
    /// It passes. One was, and was let go since: questions need the same rights as changes
    /// (`nfnetlink_rcv`, Linux 6.18), and were answered. Or a question failed for another reason.
    Nobody,
    /// Rights are missing; or the error says something else.
    Error,
}

/// What is to blame for `error`, which came of changing `tables`.
pub fn blame(error: &KernelError, netlink: &mut Netlink, tables: &[&'static str]) -> Blame {
    if error.cause() != Cause::Rights {
        return Blame::Error;
    }
    let all = tables
        .iter()
        .flat_map(|table| FAMILIES.map(|family| (*table, family)));
    for (table, family) in all {
        let request = question(
            nfproto(family),
            abi::NFT_MSG_GETTABLE,
            NLM_F_ACK,
            |request| {
                request.text(abi::NFTA_TABLE_NAME, table);
            },
        );
        let owner = netlink.ask(&request, "looking for the owner of a table", |read| {
            read.number(abi::NFTA_TABLE_OWNER)
        });
        if matches!(&owner, Err(error) if error.cause() == Cause::Rights) {
            return Blame::Error;
        }
        let owner = owner.ok().flatten().flatten();
        if let Some(port) = owner.filter(|port| *port != 0) {
            return Blame::Owner(Owned {
                table,
                family,
                port,
            });
        }
    }
    Blame::Nobody
}
