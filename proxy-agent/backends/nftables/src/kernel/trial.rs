//! Every kind of rule and set, and the lock, tried in a network namespace that is gone at once: what the kernel
//! takes there it takes anywhere.

use std::{thread, time::Duration};

use nix::sched::{CloneFlags, unshare};
use proxy_backend::{Translates, every_kind};

use super::{FAMILIES, KernelError, lock, socket::Netlink, transaction::Transaction};
use crate::{MASQUERADE_BIT, NftablesOptions, plan::Plan, wanted::Wanted};

/// What the kernel took of them.
#[derive(Debug)]
pub struct Tried {
    /// Rules and sets of every kind.
    pub rules: Result<(), KernelError>,
    /// A table with an owner, which is the lock.
    pub owned: Result<(), KernelError>,
}

/// Whether the kernel took everything; false if there was no place to try.
pub fn try_rules() -> Result<bool, KernelError> {
    match tried() {
        None => Ok(false),
        Some(tried) => tried.rules.and(tried.owned).map(|()| true),
    }
}

/// What the kernel took, one by one; `None` if there was no place to try.
pub fn tried() -> Option<Tried> {
    let tried = thread::scope(|scope| {
        let tried = scope.spawn(|| match unshare(CloneFlags::CLONE_NEWNET) {
            Err(_) => None,
            Ok(()) => Some(Tried {
                rules: write_everything(),
                owned: own_a_table(),
            }),
        });
        tried.join()
    });
    tried.unwrap_or(None)
}

fn write_everything() -> Result<(), KernelError> {
    let state = every_kind();
    let options = NftablesOptions {
        mark: 1 << MASQUERADE_BIT,
        above: Translates::All,
    };
    let mut netlink = Netlink::open()?;
    let mut transaction = Transaction::new(None);
    for family in FAMILIES {
        let (wanted, elements) = Wanted::of(&state, family, options);
        transaction.write(family, &wanted.fixed, &Plan::whole(&wanted, &elements));
    }
    let (batch, confirmed) = transaction.finish();
    netlink.transact(&batch, confirmed)
}

fn own_a_table() -> Result<(), KernelError> {
    match lock::Lock::take(lock::Duty::Rules, Duration::ZERO) {
        Err(lock::LockError::Kernel(error)) => Err(error),
        // Nobody else is in this namespace.
        _ => Ok(()),
    }
}
