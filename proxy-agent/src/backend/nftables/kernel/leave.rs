//! Taking the tables away: all of them, or all but what connections need that were translated.

use std::{thread, time::Duration};

use proxy_model::IpFamily;

use super::{
    FAMILIES, abi,
    socket::{KernelError, Netlink},
    transaction::Transaction,
    wire::Attributes,
};
use crate::backend::nftables::{
    TABLE,
    fixed::{SERVICES, nat_chains},
};

/// Who called `connect` before another backend led it, and whose first packet has not come by yet,
/// still needs the rules. That is a matter of microseconds, unless the machine is very busy.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// Removes the tables of both families. Returns those that were there. Connections that were led
/// to an endpoint break if nothing else translates in this namespace.
pub fn cleanup() -> Result<Vec<IpFamily>, KernelError> {
    let Some((mut netlink, there)) = there()? else {
        return Ok(Vec::new());
    };
    let mut transaction = Transaction::new(None);
    for family in &there {
        transaction.remove_table(*family);
    }
    commit(&mut netlink, transaction, &there)?;
    Ok(there)
}

/// Leaves only chains with nat hooks, which lead nowhere, in tables that are there: nothing new is
/// led anywhere, and what was goes on, because the kernel looks connections up and translates for
/// as long as there are such chains with a rule about connections.
/// Returns the families that led somewhere before. Waits for a second if there are any.
pub fn drain() -> Result<Vec<IpFamily>, KernelError> {
    let Some((mut netlink, mut there)) = there()? else {
        return Ok(Vec::new());
    };
    let mut leading = Vec::new();
    for family in there {
        if leads(&mut netlink, family)? {
            leading.push(family);
        }
    }
    there = leading;
    if !there.is_empty() {
        thread::sleep(UNDER_WAY);
    }
    let mut transaction = Transaction::new(None);
    for family in &there {
        transaction.remove_table(*family);
        transaction.make_table(*family);
        for chain in nat_chains(*family) {
            transaction.chain(*family, chain.name, chain.hook);
            for rule in &chain.rules {
                transaction.rule(*family, chain.name, rule);
            }
        }
    }
    commit(&mut netlink, transaction, &there)?;
    Ok(there)
}

/// Whether the table leads anywhere: not if only the chains with nat hooks were left.
fn leads(netlink: &mut Netlink, family: IpFamily) -> Result<bool, KernelError> {
    let mut leads = false;
    let of_table = |attributes: &mut Attributes<'_>| attributes.text(abi::NFTA_TABLE_NAME, TABLE);
    netlink.dump(family, abi::NFT_MSG_GETCHAIN, of_table, |read| {
        let ours = read.text(abi::NFTA_TABLE_NAME) == Some(TABLE);
        leads |= ours && read.text(abi::NFTA_CHAIN_NAME) == Some(SERVICES);
    })?;
    Ok(leads)
}

/// The families that have a table; `None` where the kernel knows no such tables.
fn there() -> Result<Option<(Netlink, Vec<IpFamily>)>, KernelError> {
    let look = || -> Result<(Netlink, Vec<IpFamily>), KernelError> {
        let mut netlink = Netlink::open()?;
        let mut there = Vec::new();
        for family in FAMILIES {
            if netlink.has_table(family)? {
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

fn commit(
    netlink: &mut Netlink,
    transaction: Transaction,
    there: &[IpFamily],
) -> Result<(), KernelError> {
    if there.is_empty() {
        return Ok(());
    }
    let (batch, confirmed) = transaction.finish();
    netlink.transact(&batch, confirmed)
}
