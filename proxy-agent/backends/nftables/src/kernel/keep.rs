//! Tables that keep the kernel translating: what somebody has begun to translate, kube-proxy or a
//! backend of ours, breaks when the last chain with a nat hook goes. So these are put in before
//! anything is taken away, and stay for as long as there are such connections. They lead nowhere.

use proxy_model::IpFamily;

use super::{
    FAMILIES,
    leave::{commit, there},
    lock::{Duty, Lock, LockError},
    socket::KernelError,
    transaction::Transaction,
};
use crate::{KEPT, fixed::nat_chains};

/// What the kernel says to a chain with a nat hook where it has no translation for a family: then
/// nothing there can be translated by nftables, and iptables keeps its own hooks.
const NO_TRANSLATION: [i32; 3] = [libc::ENOENT, libc::EAFNOSUPPORT, libc::EOPNOTSUPP];

/// Whoever puts them in, and takes them away again. Only one does in a network namespace: another
/// agent there, with a backend and pins of its own, would take away what this one still needs.
#[derive(Debug, Default)]
pub struct Keeper {
    lock: Option<Lock>,
}

impl Keeper {
    /// Puts them in, and what is missing in them. Returns the families that have one now: none
    /// where the kernel has no nftables.
    pub fn keep(&mut self) -> Result<Vec<IpFamily>, KernelError> {
        let Some((mut netlink, _)) = there(KEPT)? else {
            return Ok(Vec::new());
        };
        self.hold()?;
        let mut kept = Vec::new();
        for family in FAMILIES {
            match commit(&mut netlink, tables(family)) {
                Ok(()) => kept.push(family),
                Err(error) if NO_TRANSLATION.iter().any(|errno| error.is(*errno)) => {
                    tracing::debug!(%error, %family, "nothing to keep translating with");
                }
                Err(error) => return Err(error),
            }
        }
        if kept.is_empty() {
            self.lock = None;
        }
        Ok(kept)
    }

    /// Takes them away, unless somebody else keeps by them. Returns whether it did.
    pub fn let_go(&mut self) -> Result<bool, KernelError> {
        let may = self.hold()?;
        if may {
            super::leave::remove_all(&[KEPT])?;
            self.lock = None;
        }
        Ok(may)
    }

    /// Whether nobody else keeps by them; then nobody else will.
    fn hold(&mut self) -> Result<bool, KernelError> {
        if self.lock.is_none() {
            self.lock = match Lock::take_if_known(Duty::Connections) {
                Ok(lock) => lock,
                Err(LockError::Held(..)) => return Ok(false),
                Err(LockError::Kernel(error)) => return Err(error),
            };
        }
        Ok(true)
    }
}

fn tables(family: IpFamily) -> Transaction {
    let mut transaction = Transaction::new(None);
    transaction.about(KEPT).make_table(family);
    for chain in nat_chains(family) {
        transaction.chain(family, chain.name, chain.hook);
        transaction.flush(family, chain.name);
        for rule in &chain.rules {
            transaction.rule(family, chain.name, rule);
        }
    }
    transaction
}

/// Whether one of them is there, of this run or an earlier one.
pub fn is_kept() -> Result<bool, KernelError> {
    Ok(there(KEPT)?.is_some_and(|(_, families)| !families.is_empty()))
}
