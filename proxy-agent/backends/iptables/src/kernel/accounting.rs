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

fn request(command: u16, flags: u16, name: &str) -> Messages {
    let head = Head {
        kind: NFNL_SUBSYS_ACCT << 8 | command,
        flags: flags | NLM_F_REQUEST | NLM_F_ACK,
        ..Head::default()
    };
    Messages::one(head, |attributes| attributes.text(NAME, name))
}

/// Makes those that are not there. Fails on a kernel without them.
pub fn ensure() -> io::Result<()> {
    for name in counters::ALL {
        match ask(&request(NEW, NLM_F_CREATE, name)) {
            // It is there.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => {}
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
    let mut packets = None;
    let asked = request(GET, 0, counter);
    let answered = open().and_then(|mut socket| {
        netfilter::exchange(&mut socket, asked.as_bytes(), |kind, value| {
            if kind == PACKETS {
                packets = value.try_into().ok().map(u64::from_be_bytes);
            }
        })
    });
    answered.ok().and(packets)
}
