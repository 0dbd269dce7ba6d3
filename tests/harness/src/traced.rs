//! What rules do with a packet, by their text alone: what is the same whoever's rules they are.
//!
//! ```text
//! text ──> rules (nft, xtables) ──> walk ──> runs ──> fate
//!                                     │ once for each random choice
//! ```
//!
//! Asks no kernel, and knows no rule. [`way`] has the hooks of a host in their order, [`choices`] makes each random
//! choice in every way.

pub mod choices;
pub mod way;

use std::{collections::BTreeMap, net::IpAddr, net::SocketAddr};

use anyhow::{Context as _, Result, bail, ensure};
use proxy_model::oracle::Packet;

use crate::scenario::packets::Fate;

/// By how much the chances of two endpoints may differ: rules say chances at ten decimals.
const ALIKE: f64 = 1e-6;

/// Rules that are understood.
pub trait Traced {
    /// What they remember of a client.
    type Kept;

    /// Every way that `packet` may go on a host whose own addresses `is_own` knows, while `kept` is
    /// remembered: a packet from one of those addresses is what the host itself sends.
    fn runs(
        &self,
        packet: &Packet,
        is_own: &dyn Fn(IpAddr) -> bool,
        kept: &[Self::Kept],
    ) -> Result<Vec<Run<Self::Kept>>>;

    /// What may become of `packet`. Every random choice is made in every way; fails if one decides about more than
    /// which endpoint it is, or prefers one.
    fn fate(&self, packet: &Packet, is_own: &dyn Fn(IpAddr) -> bool) -> Result<Fate> {
        merge(&self.runs(packet, is_own, &[])?)
    }

    /// Whether wherever `packet` is led, the next one of this client is led there, too, by what the
    /// rules remember.
    fn keeps_clients(&self, packet: &Packet, is_own: &dyn Fn(IpAddr) -> bool) -> Result<bool> {
        for run in self.runs(packet, is_own, &[])? {
            let next = self.runs(packet, is_own, &run.kept)?;
            if next.iter().any(|next| next.end != run.end) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It is gone.
    Dropped,
    /// It is gone, and its sender is told.
    Rejected,
    /// It goes on as it was.
    Untouched,
    /// It has this destination now; true if the host is its source.
    Led(SocketAddr, bool),
}

/// One way that a packet may go.
#[derive(Debug)]
pub struct Run<K> {
    /// What became of it.
    pub end: End,
    /// How likely it is: from 0 to 1, and those of all ways are 1.
    pub chance: f64,
    /// What the rules will remember of it.
    pub kept: Vec<K>,
}

/// One fate of all ways that a packet may go.
fn merge<K>(runs: &[Run<K>]) -> Result<Fate> {
    let fate = |end: &End| match *end {
        End::Dropped => Fate::Dropped,
        End::Rejected => Fate::Rejected,
        End::Untouched => Fate::Untouched,
        End::Led(to, masqueraded) => Fate::Endpoints([(to, masqueraded)].into()),
    };
    let mut chances = BTreeMap::new();
    let mut merged: Option<Fate> = None;
    for run in runs {
        let fate = fate(&run.end);
        if let Fate::Endpoints(endpoints) = &fate {
            for endpoint in endpoints.keys() {
                *chances.entry(*endpoint).or_insert(0.0) += run.chance;
            }
        }
        match (&mut merged, fate) {
            (None, fate) => merged = Some(fate),
            (Some(Fate::Endpoints(all)), Fate::Endpoints(more)) => {
                for (endpoint, masqueraded) in more {
                    let before = *all.entry(endpoint).or_insert(masqueraded);
                    ensure!(
                        before == masqueraded,
                        "chance decides whether what goes to {endpoint} is masqueraded"
                    );
                }
            }
            (Some(one), other) if *one == other => {}
            (Some(one), other) => bail!("chance decides between {one} and {other}"),
        }
    }
    let chances: Vec<f64> = chances.into_values().collect();
    ensure!(
        chances
            .windows(2)
            .all(|two| (two[0] - two[1]).abs() < ALIKE),
        "some endpoints are chosen more often than others"
    );
    merged.context("there is no way at all")
}

/// What tests of interpreters send.
#[cfg(test)]
pub(crate) mod fixtures {
    use std::net::{IpAddr, SocketAddr};

    use proxy_model::{Protocol, oracle::Packet};

    /// Whether the host has the address.
    pub(crate) fn is_own(address: IpAddr) -> bool {
        ["192.0.2.11", "127.0.0.1"].contains(&&*address.to_string())
    }

    /// A packet of TCP; `from` may name the interface that it arrives on, after an `@`.
    pub(crate) fn packet(from: &str, to: &str) -> Packet {
        let (from, interface) = match from.split_once('@') {
            Some((from, interface)) => (from, Some(interface.into())),
            None => (from, None),
        };
        Packet {
            source: from.parse().unwrap(),
            destination: to.parse::<SocketAddr>().unwrap(),
            protocol: Protocol::Tcp,
            interface,
        }
    }
}
