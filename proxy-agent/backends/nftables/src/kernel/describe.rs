//! What a message was to do, in words: for errors that tell which one the kernel refused.

use proxy_netlink::{attributes::Read, message::Messages, nf_tables as abi};

/// What the message with this number was to do.
pub fn describe(batch: &Messages, sequence: u32) -> String {
    let Some((kind, attributes)) = batch.find(sequence) else {
        return "a transaction".to_owned();
    };
    let read = Read(attributes);
    let (verb, name) = match kind & 0xff {
        _ if kind == abi::NFNL_MSG_BATCH_BEGIN => return "a transaction".to_owned(),
        abi::NFT_MSG_NEWTABLE => ("making the table", None),
        abi::NFT_MSG_DELTABLE => ("removing the table", None),
        abi::NFT_MSG_NEWCHAIN => ("making the chain", read.text(abi::NFTA_CHAIN_NAME)),
        abi::NFT_MSG_DELCHAIN => ("removing the chain", read.text(abi::NFTA_CHAIN_NAME)),
        abi::NFT_MSG_NEWRULE => (
            "making a rule of the chain",
            read.text(abi::NFTA_RULE_CHAIN),
        ),
        abi::NFT_MSG_DELRULE => ("emptying the chain", read.text(abi::NFTA_RULE_CHAIN)),
        abi::NFT_MSG_NEWSET => ("making the set", read.text(abi::NFTA_SET_NAME)),
        abi::NFT_MSG_DELSET => ("removing the set", read.text(abi::NFTA_SET_NAME)),
        abi::NFT_MSG_NEWSETELEM => (
            "adding elements to the set",
            read.text(abi::NFTA_SET_ELEM_LIST_SET),
        ),
        abi::NFT_MSG_DELSETELEM => (
            "removing elements from the set",
            read.text(abi::NFTA_SET_ELEM_LIST_SET),
        ),
        _ => ("a transaction", None),
    };
    match name {
        Some(name) => format!("{verb} {name}"),
        None => verb.to_owned(),
    }
}
