//! UDP flows that outlived the rules which made them.
//!
//! A rule decides once, for the first packet of a flow; conntrack remembers the decision and
//! applies it for as long as packets keep coming. Where TCP breaks and connects anew, a UDP client
//! that keeps its port (a DNS resolver, QUIC) goes on sending to an endpoint that is gone. So
//! flows that the present rules would not make are removed, and their next packet is decided anew.
//! TCP and SCTP flows are never touched: an endpoint that is being removed finishes what it has.
//!
//! [`Cleaner`] knows when that is due and does it; [`Expected`] is the decision, without a kernel.
//! Nothing here knows rules: it works behind whatever translates destinations through conntrack.
#![cfg(target_os = "linux")]

mod allowed;
mod cleaner;
mod dump;
mod expected;
mod flow;
mod message;
mod removal;
mod standing;
#[cfg(test)]
mod tests;

use std::{
    io,
    time::{Duration, Instant},
};

use netlink_packet_core::DecodeError;
use proxy_model::IpFamily;
use proxy_netlink::netfilter;
use thiserror::Error;

pub use self::{
    cleaner::Cleaner,
    expected::Expected,
    flow::Flow,
    standing::{gone, needs_cleaning},
};
use self::{dump::Wanted, flow::UDP, removal::Removal};

/// A table that changes while it is read is read again, this often at most: what the last reading
/// missed is met by the next clean.
const READINGS: usize = 5;

/// What a clean did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cleaned {
    /// UDP flows that the kernel told, those of others included. One that was told twice, because
    /// the table changed while it was read, counts twice.
    pub seen: usize,
    /// IPv4 flows that were removed.
    pub deleted_v4: usize,
    /// IPv6 flows that were removed.
    pub deleted_v6: usize,
    /// How long that took for IPv4; `None` if there was nothing to look for.
    pub took_v4: Option<Duration>,
    /// The same for IPv6.
    pub took_v6: Option<Duration>,
}

impl Cleaned {
    /// Flows of both families that were removed.
    pub fn deleted(&self) -> usize {
        self.deleted_v4 + self.deleted_v6
    }
}

/// Why flows could not be looked at or removed. What was removed before stays removed.
#[derive(Debug, Error)]
pub enum ConntrackError {
    /// The kernel refused.
    #[error("{attempted}: {source}; {advice}", advice = advice(source))]
    Kernel {
        /// What was attempted.
        attempted: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel's answer makes no sense.
    #[error("decoding the kernel's list of connections: {0}")]
    Answer(#[from] DecodeError),
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        // An answer was lost, or there was no room for it.
        io::ErrorKind::TimedOut => "what is left is looked for again",
        _ if error.raw_os_error() == Some(libc::ENOBUFS) => "what is left is looked for again",
        io::ErrorKind::PermissionDenied => "run as root, or with CAP_NET_ADMIN",
        _ => "check that the kernel has nf_conntrack_netlink (CONFIG_NF_CT_NETLINK)",
    }
}

/// Makes an error of the kernel one that says what was attempted.
fn attempted(attempted: &'static str) -> impl Fn(io::Error) -> ConntrackError {
    move |source| ConntrackError::Kernel { attempted, source }
}

/// Removes the flows of this network namespace that are stale by `expected`. The rules must be in
/// force already: a flow that is removed before them comes back as it was.
///
/// Blocks: the kernel walks its whole table, and tells the UDP flows in it. Each is told once,
/// unless the table changed meanwhile.
pub fn clean(expected: &Expected) -> Result<Cleaned, ConntrackError> {
    let mut cleaned = Cleaned::default();
    for family in [IpFamily::V4, IpFamily::V6] {
        if !expected.names(family) {
            continue;
        }
        let began = Instant::now();
        let mut removal = Removal::open(family)?;
        for _ in 0..READINGS {
            let whole = dump::each(Wanted::Protocol(family, UDP), |flow, identity| {
                cleaned.seen += 1;
                if expected.is_stale(flow) {
                    removal.remove(identity)?;
                }
                Ok(())
            })?;
            removal.finish()?;
            if whole {
                break;
            }
        }
        let (deleted, took) = match family {
            IpFamily::V4 => (&mut cleaned.deleted_v4, &mut cleaned.took_v4),
            IpFamily::V6 => (&mut cleaned.deleted_v6, &mut cleaned.took_v6),
        };
        (*deleted, *took) = (removal.removed(), Some(began.elapsed()));
    }
    Ok(cleaned)
}

/// How many flows of this network namespace have a translated destination, whoever had it
/// translated, of any protocol. While there are some, the kernel's translation must stay hooked
/// in: it is what keeps them connected.
pub fn dnat_flows() -> Result<usize, ConntrackError> {
    let mut flows = 0;
    for _ in 0..READINGS {
        flows = 0;
        if each_translated(|_| flows += 1)? {
            break;
        }
    }
    Ok(flows)
}

/// Has the kernel load its connection tracking, if it is a module that is not loaded: whoever asks for
/// something of it over netlink has it loaded, with `CAP_NET_ADMIN` and nothing else.
pub fn load() -> Result<(), ConntrackError> {
    netfilter::ask(&message::statistics())
        .map_err(attempted("having the kernel load connection tracking"))
}

/// Shows each flow of this network namespace with a translated destination, whoever had it
/// translated, of any protocol. Whether those were all: false if some may be missing or told twice.
pub fn each_translated(mut visit: impl FnMut(&Flow)) -> Result<bool, ConntrackError> {
    dump::each(Wanted::Translated, |flow, _| {
        if flow.translated {
            visit(flow);
        }
        Ok(())
    })
}
