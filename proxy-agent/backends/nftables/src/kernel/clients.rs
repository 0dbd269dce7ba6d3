//! Clients with session affinity whose endpoint has left: they are forgotten, so that an endpoint
//! that comes back finds none that have gone to another one since.

use std::collections::BTreeSet;

use proxy_model::IpFamily;

use super::{
    socket::{KernelError, Netlink},
    transaction::Transaction,
};
use crate::{
    TABLE, chains::ServiceChain, key::Key, plan::Plan, ruleset::Value, sets::Set, wanted::Wanted,
};
use proxy_netlink::{
    attributes::{Attributes, Read},
    nf_tables as abi,
};

/// What is about to be forgotten anyhow, in milliseconds: between reading and removing it, it may
/// be gone, and then nothing of the transaction is done.
const NEARLY: u64 = 2000;
/// Should that happen all the same.
const ATTEMPTS: u32 = 5;

/// Whether endpoints that clients have may have left with `plan`.
pub fn may_be_orphaned(plan: &Plan) -> bool {
    let mut stale = plan.stale_chains.iter();
    stale.any(|name| name.starts_with(ServiceChain::STICKY_ENDPOINT))
}

/// Forgets clients of endpoints that `wanted` does not know. Returns with how many transactions.
pub fn forget(netlink: &mut Netlink, wanted: &Wanted) -> Result<u32, KernelError> {
    let family = wanted.facts.family;
    let known = wanted.chains.values().filter_map(|(chain, _)| match chain {
        ServiceChain::StickyEndpoint(endpoint) => Some(endpoint.number),
        _ => None,
    });
    let known: BTreeSet<u32> = known.collect();
    for attempt in 1.. {
        let orphans = orphans(netlink, family, &known)?;
        if orphans.is_empty() {
            return Ok(0);
        }
        let mut transaction = Transaction::new(None);
        let plan = Plan {
            removed: orphans,
            ..Plan::default()
        };
        transaction.write(family, &[], &plan);
        let (batch, confirmed) = transaction.finish();
        match netlink.transact(&batch, confirmed) {
            Err(error) if error.is(libc::ENOENT) && attempt < ATTEMPTS => {}
            result => return result.map(|()| 1),
        }
    }
    Ok(0)
}

fn orphans(
    netlink: &mut Netlink,
    family: IpFamily,
    known: &BTreeSet<u32>,
) -> Result<Vec<(Set, Key, Value)>, KernelError> {
    let of_set = |list: &mut Attributes<'_>| {
        list.text(abi::NFTA_SET_ELEM_LIST_TABLE, TABLE);
        list.text(abi::NFTA_SET_ELEM_LIST_SET, Set::StickyClients.name());
    };
    let mut orphans = Vec::new();
    // What came while it was read has an endpoint that is there.
    netlink.dump(family, abi::NFT_MSG_GETSETELEM, of_set, |read| {
        for (_, element) in read.nested(abi::NFTA_SET_ELEM_LIST_ELEMENTS).each() {
            let element = Read(element);
            let remains = element.long(abi::NFTA_SET_ELEM_EXPIRATION);
            let key = element.nested(abi::NFTA_SET_ELEM_KEY);
            let key = key.get(abi::NFTA_DATA_VALUE).and_then(Key::from_bytes);
            if let Some(key) = key
                && key
                    .last_number()
                    .is_some_and(|number| !known.contains(&number))
                && remains.is_none_or(|remains| remains > NEARLY)
            {
                orphans.push((Set::StickyClients, key, Value::None));
            }
        }
    })?;
    Ok(orphans)
}
