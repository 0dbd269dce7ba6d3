//! Every kind of rule and set, tried in a network namespace that is gone at once: what the kernel
//! takes there it takes anywhere.

use std::{thread, time::Duration};

use nix::sched::{CloneFlags, unshare};
use proxy_backend::{Translates, every_kind};

use super::{FAMILIES, KernelError, lock, socket::Netlink, transaction::Transaction};
use crate::{MASQUERADE_BIT, NftablesOptions, plan::Plan, wanted::Wanted};

/// Whether the kernel took them; false if there was no place to try.
pub fn try_rules() -> Result<bool, KernelError> {
    let tried = thread::scope(|scope| {
        scope
            .spawn(|| match unshare(CloneFlags::CLONE_NEWNET) {
                Err(_) => Ok(false),
                Ok(()) => write_everything().map(|()| true),
            })
            .join()
    });
    tried.unwrap_or(Ok(false))
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
    netlink.transact(&batch, confirmed)?;
    match lock::Lock::take(lock::Duty::Rules, Duration::ZERO) {
        Err(lock::LockError::Kernel(error)) => Err(error),
        // Nobody else is in this namespace.
        _ => Ok(()),
    }
}
