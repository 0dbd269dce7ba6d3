//! Chains and ranges that nothing leads to any more, until they are gone. Kernels before 6.2 still
//! count what led to a chain for some time after it was removed, and do not let the chain go
//! (`EBUSY`).

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Unbounded},
    sync::Arc,
    time::{Duration, Instant},
};

use proxy_backend::Retry;
use proxy_model::IpFamily;

use super::{
    FAMILIES,
    socket::{KernelError, Netlink},
    transaction::Transaction,
};
use crate::{chains::ServiceChain, plan::Plan};

/// How long is spent on it at once: whoever asks has more to do.
const BUDGET: Duration = Duration::from_millis(100);
/// Deleted with one transaction. Each that cannot be deleted is answered, and all answers must fit
/// into the socket.
const TOGETHER: usize = 128;

/// What kind of object waits, in the order in which they are deleted: what uses others comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StaleKind {
    /// With how far it is from where the kernel enters.
    Chain(u8),
    Set,
}

impl StaleKind {
    fn chain(name: &str) -> Self {
        Self::Chain(ServiceChain::depth(name))
    }
}

type Name = (StaleKind, IpFamily, Arc<str>);

/// What waits.
#[derive(Debug, Default)]
pub struct Stale {
    /// What is to be deleted, in that order.
    waiting: BTreeSet<Name>,
    /// As far as that was not tried yet.
    new: BTreeSet<Name>,
    /// What was tried last: the others come first the next time.
    last: Option<Name>,
    retry: Retry,
}

/// What became of some names.
#[derive(Debug, Default)]
struct Attempt {
    gone: Vec<Name>,
    /// How many transactions were committed.
    transactions: u32,
}

impl Stale {
    /// Takes what `plan` leaves over, and forgets what it makes.
    pub fn put(&mut self, family: IpFamily, plan: &Plan) {
        if plan.fresh {
            self.keep(|(_, of, _)| *of != family);
        }
        let chains = plan.stale_chains.iter();
        let chains = chains.map(|name| (StaleKind::chain(name), family, Arc::clone(name)));
        let ranges = plan.stale_ranges.iter();
        let ranges = ranges.map(|name| (StaleKind::Set, family, Arc::clone(name)));
        for name in chains.chain(ranges) {
            if self.waiting.insert(name.clone()) {
                self.new.insert(name);
            }
        }
        for (name, _) in &plan.new_chains {
            self.forget(&(StaleKind::chain(name), family, Arc::clone(name)));
        }
        for ranges in &plan.new_ranges {
            self.forget(&(StaleKind::Set, family, Arc::clone(&ranges.name)));
        }
    }

    fn forget(&mut self, name: &Name) {
        self.waiting.remove(name);
        self.new.remove(name);
    }

    fn keep(&mut self, keep: impl Fn(&Name) -> bool) {
        self.waiting.retain(&keep);
        self.new.retain(&keep);
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Names of what waits in the table of `family`.
    pub fn names(&self, family: IpFamily) -> impl Iterator<Item = Arc<str>> {
        let all = self.waiting.iter();
        all.filter(move |(_, of, _)| *of == family)
            .map(|(.., name)| Arc::clone(name))
    }

    /// Forgets what is `needed` again.
    pub fn spare(&mut self, needed: &[BTreeSet<Arc<str>>; 2]) {
        for (family, needed) in FAMILIES.into_iter().zip(needed) {
            self.keep(|(_, of, name)| *of != family || !needed.contains(name));
        }
    }

    /// Deletes what was put since the last time, as far as that can be deleted. Returns with how many
    /// transactions.
    pub fn delete_new(&mut self, netlink: &mut Netlink) -> u32 {
        let names: Vec<_> = std::mem::take(&mut self.new).into_iter().collect();
        let until = Instant::now() + BUDGET;
        let attempt = |some: &[Name]| delete(netlink, some);
        self.delete(&names, || Instant::now() < until, attempt)
    }

    /// Tries again what could not be deleted, some of it at a time and less often while nothing of it
    /// can. Returns with how many transactions.
    pub fn tend(&mut self, netlink: &mut Netlink) -> u32 {
        let began = Instant::now();
        if self.is_empty() || !self.retry.is_due(began) {
            return 0;
        }
        let (names, before) = (self.in_turn(), self.waiting.len());
        let until = began + BUDGET;
        let attempt = |some: &[Name]| delete(netlink, some);
        let transactions = self.delete(&names, || Instant::now() < until, attempt);
        let done = self.waiting.len() < before;
        self.retry.tried(done, Instant::now());
        transactions
    }

    /// All that waits, beginning behind what was tried last.
    fn in_turn(&self) -> Vec<Name> {
        let Some(last) = &self.last else {
            return self.waiting.iter().cloned().collect();
        };
        let behind = self.waiting.range((Excluded(last), Unbounded));
        let rest = self.waiting.range(..=last);
        behind.chain(rest).cloned().collect()
    }

    /// Tries `names`, some with each attempt, for as long as there is time.
    fn delete(
        &mut self,
        names: &[Name],
        in_time: impl Fn() -> bool,
        mut attempt: impl FnMut(&[Name]) -> Attempt,
    ) -> u32 {
        let mut transactions = 0;
        for some in names.chunks(TOGETHER) {
            let attempted = attempt(some);
            transactions += attempted.transactions;
            for name in attempted.gone {
                self.forget(&name);
            }
            self.last = some.last().cloned();
            if !in_time() {
                break;
            }
        }
        transactions
    }
}

/// Deletes what can be deleted of `some`: the kernel names all that cannot, and the others go with
/// another transaction.
fn delete(netlink: &mut Netlink, some: &[Name]) -> Attempt {
    /// What is held may hold others in turn, which the kernel tells the first time.
    const TRANSACTIONS: u32 = 3;
    let mut attempt = Attempt::default();
    let mut left = some.to_vec();
    for _ in 0..TRANSACTIONS {
        let held = match refused(netlink, &left) {
            Ok(held) => held,
            Err(error) => {
                tracing::debug!(%error, "not deleted yet");
                break;
            }
        };
        if held.is_empty() {
            attempt.transactions += 1;
            attempt.gone.append(&mut left);
            break;
        }
        left.retain(|name| !held.iter().any(|(held, _)| held == name));
        let missing = held.into_iter().filter(|(_, errno)| *errno == libc::ENOENT);
        attempt.gone.extend(missing.map(|(name, _)| name));
        if left.is_empty() {
            break;
        }
    }
    attempt
}

/// Tries to delete all of `names`. Returns those that stand in the way, each with the reason; an
/// error if it is not they that do.
fn refused(netlink: &mut Netlink, names: &[Name]) -> Result<Vec<(Name, i32)>, KernelError> {
    let mut transaction = Transaction::new(None);
    let mut by_message = BTreeMap::new();
    for name in names {
        let number = match name {
            (StaleKind::Chain(_), family, name) => transaction.remove_chain(*family, name),
            (StaleKind::Set, family, name) => transaction.remove_set(*family, name),
        };
        by_message.insert(number, name);
    }
    let (batch, confirmed) = transaction.finish();
    let refused = netlink.refusals(&batch, confirmed)?;
    let held = refused.into_iter().map(|(number, errno)| {
        let name = by_message.get(&number).copied().cloned();
        name.map(|name| (name, errno))
            .ok_or_else(|| KernelError::of("a transaction", errno))
    });
    held.collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn name(number: usize) -> Name {
        (
            StaleKind::Chain(0),
            IpFamily::V4,
            format!("chain-{number:04}").into(),
        )
    }

    fn waiting(count: usize) -> Stale {
        Stale {
            waiting: (0..count).map(name).collect(),
            ..Stale::default()
        }
    }

    #[test]
    fn what_is_held_is_tried_in_turn_and_holds_nothing_else() {
        let mut stale = waiting(1000);
        let free = name(999);
        let mut tried = BTreeSet::new();
        let mut ticks = 0;
        while stale.waiting.contains(&free) {
            ticks += 1;
            assert!(ticks <= 8, "each is tried once before any is tried again");
            let attempts = Cell::new(0);
            let names = stale.in_turn();
            let in_time = || attempts.get() < 1;
            let attempt = |some: &[Name]| {
                attempts.set(attempts.get() + 1);
                tried.extend(some.iter().cloned());
                let gone = some.iter().filter(|one| **one == free).cloned().collect();
                Attempt {
                    gone,
                    transactions: 1,
                }
            };
            stale.delete(&names, in_time, attempt);
            assert_eq!(attempts.get(), 1, "no more than there is time for");
        }
        assert_eq!((ticks, tried.len()), (8, 1000));
        assert_eq!(stale.waiting.len(), 999);
    }

    #[test]
    fn what_is_made_again_waits_no_longer() {
        let mut stale = waiting(3);
        let plan = Plan {
            new_chains: vec![("chain-0001".into(), vec![])],
            stale_chains: vec!["chain-0007".into()],
            ..Plan::default()
        };
        stale.put(IpFamily::V4, &plan);
        let names: Vec<_> = stale.names(IpFamily::V4).collect();
        assert_eq!(names.join(" "), "chain-0000 chain-0002 chain-0007");
        assert_eq!(stale.new.len(), 1, "the others were tried");
        stale.spare(&[["chain-0007".into()].into(), BTreeSet::new()]);
        assert_eq!((stale.waiting.len(), stale.new.len()), (2, 0));
        let fresh = Plan {
            fresh: true,
            ..Plan::default()
        };
        stale.put(IpFamily::V6, &fresh);
        assert!(!stale.is_empty());
        stale.put(IpFamily::V4, &fresh);
        assert!(stale.is_empty());
    }
}
