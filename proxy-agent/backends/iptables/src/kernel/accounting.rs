//! The kernel's counters of packets that rules name (nfacct), over netlink (`linux/netfilter/nfnetlink_acct.h`). They
//! are of the network namespace, and outlive the rules and the agent.

use std::io;

use proxy_netlink::{
    message::{Head, Messages, NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST},
    netfilter::{self, NFNL_SUBSYS_ACCT, ask, open},
};

use crate::table::counters;

/// `NFNL_MSG_ACCT_NEW`, `_GET` and `_DEL`.
const NEW: u16 = 0;
const GET: u16 = 1;
const DELETE: u16 = 3;
/// `NFACCT_NAME`.
const NAME: u16 = 1;
/// `NFACCT_PKTS`.
const PACKETS: u16 = 2;
/// `NFACCT_QUOTA`.
const QUOTA: u16 = 6;

fn request(command: u16, flags: u16, name: &str) -> Messages {
    let head = Head {
        kind: NFNL_SUBSYS_ACCT << 8 | command,
        flags: flags | NLM_F_REQUEST | NLM_F_ACK,
        ..Head::default()
    };
    Messages::one(head, |attributes| attributes.text(NAME, name))
}

/// Makes those that are not there. Fails on a kernel without them, and where somebody has given such a name to one
/// with a quota: rules that name that match no packet until it is used up.
pub fn ensure() -> io::Result<()> {
    for name in counters::ALL {
        match ask(&request(NEW, NLM_F_CREATE, name)) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => {
                if read(name)?.has_quota {
                    let said = format!("the counter {name} of somebody else has a quota");
                    return Err(io::Error::other(said));
                }
            }
            made => made?,
        }
    }
    Ok(())
}

/// Removes those that no rule names, whosever.
pub fn remove() {
    for name in counters::ALL {
        if let Err(error) = ask(&request(DELETE, 0, name)) {
            tracing::debug!(name, %error, "counter of packets not removed");
        }
    }
}

/// How many packets `counter` has counted; `None` where it is not there.
pub fn packets(counter: &str) -> Option<u64> {
    read(counter).ok()?.packets
}

#[derive(Debug, Default)]
struct Counter {
    packets: Option<u64>,
    has_quota: bool,
}

fn read(name: &str) -> io::Result<Counter> {
    let mut counter = Counter::default();
    let asked = request(GET, 0, name);
    netfilter::exchange(&mut open()?, asked.as_bytes(), |kind, value| match kind {
        PACKETS => counter.packets = value.try_into().ok().map(u64::from_be_bytes),
        QUOTA => counter.has_quota = true,
        _ => {}
    })?;
    Ok(counter)
}
