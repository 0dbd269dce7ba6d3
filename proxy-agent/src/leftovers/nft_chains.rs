//! Chains of kube-proxy's iptables and IPVS modes where the kernel keeps them in nftables
//! (`iptables-nft`), over netlink: for hosts without the programs of iptables. Of a rule only matters
//! which chain it leads to, which the kernel tells, whatever matches it has.

use std::io;

use proxy_model::IpFamily;
use proxy_netlink::{
    attributes::{Read, text},
    message::{Head, Messages, NLM_F_ACK, NLM_F_REQUEST},
    netfilter::ask,
    nf_tables as abi, ruleset,
};

use super::{
    error::RemoveError,
    nftables::around,
    removal::Share,
    ruleset::{Rule, Table},
};

/// The tables that kube-proxy has chains in.
const TABLES: [&str; 3] = ["mangle", "filter", "nat"];
const TABLE: u16 = abi::NFTA_TABLE_NAME;

/// What is to be deleted of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Deletion {
    family: IpFamily,
    table: String,
    /// Chains, with all their rules.
    chains: Vec<String>,
    /// Chains of which only the rules go.
    emptied: Vec<String>,
    /// Rules elsewhere that lead to those: chain and number.
    rules: Vec<(String, u64)>,
}

/// A table, and the number that the kernel knows each rule by, in the same order.
pub(super) struct Numbered {
    pub(super) table: Table,
    handles: Vec<u64>,
}

impl Numbered {
    /// Deletes what is kube-proxy's share of this table.
    pub(super) fn deletion(&self, family: IpFamily, share: &Share) -> Deletion {
        let rules = share.unhooked.iter().filter_map(|at| {
            let chain = self.table.rules.get(*at)?.chain.clone();
            Some((chain, *self.handles.get(*at)?))
        });
        Deletion {
            family,
            table: self.table.name.clone(),
            chains: share.chains.clone(),
            emptied: share.emptied.clone(),
            rules: rules.collect(),
        }
    }
}

const fn number(family: IpFamily) -> u8 {
    match family {
        IpFamily::V4 => abi::NFPROTO_IPV4,
        IpFamily::V6 => abi::NFPROTO_IPV6,
    }
}

fn head(family: IpFamily, kind: u16, flags: u16) -> Head {
    Head {
        kind: abi::NFNL_SUBSYS_NFTABLES << 8 | kind,
        flags: flags | NLM_F_REQUEST,
        family: number(family),
        resource: 0,
    }
}

/// The tables of iptables in this family, with all chains and rules; none on a kernel without nftables.
pub(super) fn read(family: IpFamily) -> io::Result<Vec<Numbered>> {
    let others = |table: &ruleset::Table| !TABLES.contains(&&*table.name);
    let tables = ruleset::read(&[number(family)], others)?;
    Ok(tables.into_iter().map(numbered).collect())
}

fn numbered((table, chains): (ruleset::Table, Vec<ruleset::Chain>)) -> Numbered {
    let mut numbered = Numbered {
        table: Table {
            name: table.name,
            ..Table::default()
        },
        handles: Vec::new(),
    };
    for chain in chains {
        for rule in chain.rules {
            let target = target(&rule.expressions);
            let to = target.iter().map(|to| format!(" -j {to}"));
            numbered.table.rules.push(Rule {
                chain: chain.name.clone(),
                text: std::iter::once("…".to_owned()).chain(to).collect(),
                target,
            });
            numbered.handles.push(rule.handle);
        }
        // A chain with a hook is a built-in one.
        if chain.hook.is_none() {
            numbered.table.chains.push(chain.name);
        }
    }
    numbered
}

/// The chain that the verdict among these expressions leads to.
fn target(expressions: &[u8]) -> Option<String> {
    Read(expressions).each().find_map(|(_, expression)| {
        let expression = Read(expression);
        if text(expression.get(abi::NFTA_EXPR_NAME)?) != "immediate" {
            return None;
        }
        let data = expression.nested(abi::NFTA_EXPR_DATA);
        let verdict = data
            .nested(abi::NFTA_IMMEDIATE_DATA)
            .nested(abi::NFTA_DATA_VERDICT);
        verdict.get(abi::NFTA_VERDICT_CHAIN).map(text)
    })
}

/// Empties the chains, takes the rules away that lead there, and deletes those that go: one
/// transaction.
pub(super) fn delete(deletion: &Deletion) -> Result<(), RemoveError> {
    let Deletion {
        family,
        table,
        chains,
        emptied,
        rules,
    } = deletion;
    let mut requests = Messages::one(around(abi::NFNL_MSG_BATCH_BEGIN), |_| {});
    let delete_rules = head(*family, abi::NFT_MSG_DELRULE, 0);
    for chain in emptied.iter().chain(chains) {
        requests.add(delete_rules, |attributes| {
            attributes.text(TABLE, table);
            attributes.text(abi::NFTA_RULE_CHAIN, chain);
        });
    }
    for (chain, handle) in rules {
        requests.add(delete_rules, |attributes| {
            attributes.text(TABLE, table);
            attributes.text(abi::NFTA_RULE_CHAIN, chain);
            attributes.long(abi::NFTA_RULE_HANDLE, *handle);
        });
    }
    for chain in chains {
        requests.add(head(*family, abi::NFT_MSG_DELCHAIN, 0), |attributes| {
            attributes.text(TABLE, table);
            attributes.text(abi::NFTA_CHAIN_NAME, chain);
        });
    }
    requests.flag_last(NLM_F_ACK);
    requests.add(around(abi::NFNL_MSG_BATCH_END), |_| {});
    ask(&requests).map_err(|error| RemoveError::Kernel {
        what: "deleting them over netlink",
        error,
    })
}
