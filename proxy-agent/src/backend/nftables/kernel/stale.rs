//! Chains and ranges that nothing leads to any more, until they are gone. Kernels before 6.2 still
//! count what led to a chain for some time after it was removed, and do not let the chain go
//! (`EBUSY`).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proxy_model::IpFamily;

use super::{FAMILIES, socket::Netlink, transaction::Transaction};
use crate::backend::nftables::plan::Plan;

/// What waits.
#[derive(Debug, Default)]
pub struct Stale {
    /// Whether it is a chain, otherwise a set.
    names: BTreeMap<(IpFamily, Arc<str>), bool>,
}

impl Stale {
    /// Takes what `plan` leaves over, and forgets what it makes.
    pub fn put(&mut self, family: IpFamily, plan: &Plan) {
        if plan.fresh {
            self.names.retain(|(of, _), _| *of != family);
        }
        for name in &plan.stale_chains {
            self.names.insert((family, Arc::clone(name)), true);
        }
        for name in &plan.stale_ranges {
            self.names.insert((family, Arc::clone(name)), false);
        }
        let made = plan.new_chains.iter().map(|(name, _)| name);
        for name in made.chain(plan.new_ranges.iter().map(|ranges| &ranges.name)) {
            self.names.remove(&(family, Arc::clone(name)));
        }
    }

    /// Names of what waits in the table of `family`.
    pub fn names(&self, family: IpFamily) -> impl Iterator<Item = Arc<str>> {
        let all = self.names.keys();
        all.filter(move |(of, _)| *of == family)
            .map(|(_, name)| Arc::clone(name))
    }

    /// Deletes what can be deleted, except what is `needed` again; returns with how many
    /// transactions.
    pub fn delete(&mut self, netlink: &mut Netlink, needed: &[BTreeSet<Arc<str>>; 2]) -> u32 {
        for (family, needed) in FAMILIES.into_iter().zip(needed) {
            self.names
                .retain(|(of, name), _| *of != family || !needed.contains(name));
        }
        if self.names.is_empty() {
            return 0;
        }
        // All at once, otherwise one by one: one that is held must not hold the others. Chains come
        // first: they use sets.
        let mut all: Vec<_> = self.names.clone().into_iter().collect();
        all.sort_by_key(|(_, is_chain)| !is_chain);
        if delete(netlink, &all) {
            self.names.clear();
            return 1;
        }
        let mut transactions = 0;
        for one in all {
            if delete(netlink, std::slice::from_ref(&one)) {
                self.names.remove(&one.0);
                transactions += 1;
            }
        }
        transactions
    }
}

fn delete(netlink: &mut Netlink, all: &[((IpFamily, Arc<str>), bool)]) -> bool {
    let mut transaction = Transaction::new(None);
    for ((family, name), is_chain) in all {
        if *is_chain {
            transaction.remove_chain(*family, name);
        } else {
            transaction.remove_set(*family, name);
        }
    }
    let (batch, confirmed) = transaction.finish();
    match netlink.transact(&batch, confirmed) {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!(%error, "not deleted yet");
            false
        }
    }
}
