//! Taking tables of ours away.

use proxy_model::IpFamily;

use super::{
    FAMILIES,
    lock::{Duty, Lock},
    owner::{self, Blame},
    refusal,
    socket::{KernelError, Netlink},
    transaction::Transaction,
};
use crate::{KEPT, TABLE};
use proxy_backend::OpenError;

/// Removes all that is ours, in one transaction. Returns the families that had something.
/// Connections that were led to an endpoint break if nothing else translates in this namespace.
pub fn cleanup() -> Result<Vec<IpFamily>, OpenError> {
    as_nobody_serves(&[TABLE, KEPT], &Duty::ALL)
}

/// Removes the tables of the backend. Returns the families that had one. Whatever they translate
/// breaks unless there are other nat hooks, as `keep` puts them in.
pub fn remove() -> Result<Vec<IpFamily>, OpenError> {
    as_nobody_serves(&[TABLE], &[Duty::Rules])
}

/// Removes them with the locks in hand: asked before, somebody could begin to serve meanwhile.
fn as_nobody_serves(tables: &[&'static str], duties: &[Duty]) -> Result<Vec<IpFamily>, OpenError> {
    let opening = |error: KernelError| refusal::opening(&error);
    let mut some = false;
    for table in tables {
        let found = there(table).map_err(opening)?;
        some |= found.is_some_and(|(_, families)| !families.is_empty());
    }
    if !some {
        return Ok(Vec::new());
    }
    let locks = duties.iter().map(|duty| Lock::take_if_known(*duty));
    let locks: Vec<_> = locks.collect::<Result<_, _>>()?;
    let blame = |error: &KernelError| {
        let netlink = Netlink::open();
        netlink.map_or(Blame::Nobody, |mut netlink| {
            owner::blame(error, &mut netlink, tables)
        })
    };
    let mut removed = remove_all(tables);
    if let Err(error) = &removed
        && blame(error) == Blame::Nobody
    {
        removed = remove_all(tables);
    }
    let removed = removed.map_err(|error| match blame(&error) {
        Blame::Owner(owned) => OpenError::Other(format!("removing tables: {owned}")),
        Blame::Nobody => OpenError::Other(format!("removing tables: {error}; try again")),
        Blame::Error => opening(error),
    });
    drop(locks);
    removed
}

/// Whether the backend has a table.
pub fn is_there() -> Result<bool, KernelError> {
    Ok(there(TABLE)?.is_some_and(|(_, families)| !families.is_empty()))
}

/// Removes these tables where they are. Returns the families that had one.
pub(super) fn remove_all(tables: &[&'static str]) -> Result<Vec<IpFamily>, KernelError> {
    let mut transaction = Transaction::new(None);
    let mut socket = None;
    let mut had = Vec::new();
    for table in tables {
        let Some((netlink, families)) = there(table)? else {
            return Ok(Vec::new());
        };
        transaction.about(table);
        for family in families {
            transaction.remove_table(family);
            had.push(family);
        }
        socket = Some(netlink);
    }
    if let Some(mut netlink) = socket.filter(|_| !had.is_empty()) {
        commit(&mut netlink, transaction)?;
    }
    had.sort_unstable();
    had.dedup();
    Ok(had)
}

/// The families that have this table, and a socket to change that; `None` where the kernel knows no
/// such tables.
pub(super) fn there(table: &str) -> Result<Option<(Netlink, Vec<IpFamily>)>, KernelError> {
    let look = || -> Result<(Netlink, Vec<IpFamily>), KernelError> {
        let mut netlink = Netlink::open()?;
        let mut there = Vec::new();
        for family in FAMILIES {
            if netlink.has_table(family, table)? {
                there.push(family);
            }
        }
        Ok((netlink, there))
    };
    // Without netfilter's sockets, and with those but without nf_tables.
    let unknown = [libc::EPROTONOSUPPORT, libc::EINVAL, libc::EOPNOTSUPP];
    match look() {
        Err(error) if unknown.iter().any(|errno| error.is(*errno)) => Ok(None),
        found => found.map(Some),
    }
}

pub(super) fn commit(netlink: &mut Netlink, transaction: Transaction) -> Result<(), KernelError> {
    let (batch, confirmed) = transaction.finish();
    netlink.transact(&batch, confirmed)
}
