//! What rules of nftables do with a packet, by their text alone: as `nft list` prints it and `nft -f`
//! takes it.
//!
//! ```text
//! text ──> words ──> table (sets, chains of statements) ──> walk ──> fate
//!                                                            │ once for each random choice
//! ```
//!
//! Knows the statements that service proxies use, and fails on any other, also in rules that no
//! packet meets. Asks no kernel, and knows nothing of Services. What it knows of the kernel: the
//! hooks and their order, that translating ends a hook and is done once, what a verdict ends.

mod field;
mod statement;
mod table;
mod walk;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use anyhow::{Context as _, Result, bail, ensure};
use proxy_model::{IpFamily, Protocol, oracle::Packet};

use crate::scenario::packets::Fate;

pub use walk::Kept;
use walk::{End, Run};

/// Tables, understood.
#[derive(Debug)]
pub struct Ruleset {
    tables: Vec<table::Table>,
}

impl Ruleset {
    /// Understands the text of tables.
    pub fn parse(text: &str) -> Result<Self> {
        let tables = table::parse_all(text)?;
        for table in &tables {
            table
                .check()
                .with_context(|| format!("table {}", table.name))?;
        }
        Ok(Self { tables })
    }

    /// Adds an element to a set of every table that has one of this name.
    pub fn insert(&mut self, set: &str, address: IpAddr) -> Result<()> {
        let mut sets = self.tables.iter_mut();
        let found = sets.find_map(|table| table.set_mut(set, address));
        found.with_context(|| format!("no set {set} for {address}"))?;
        Ok(())
    }

    /// Every address and port that maps of the family of `node` lead from, with the protocol;
    /// NodePorts on `node`.
    pub fn destinations(&self, node: IpAddr) -> Result<BTreeSet<(SocketAddr, Protocol)>> {
        let family = IpFamily::of(node);
        let tables = self.tables.iter().filter(|table| table.family == family);
        let found = tables.flat_map(|table| table.destinations(&[node]));
        found
            .map(|(to, word)| {
                let all = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
                let mut all = all.into_iter();
                let protocol = all.find(|one| one.as_str().eq_ignore_ascii_case(&word));
                Ok((to, protocol.with_context(|| format!("no protocol {word}"))?))
            })
            .collect()
    }

    /// What may become of `packet` on a host whose own addresses `is_own` knows: a packet from one of
    /// those is what the host itself sends. Every random choice is made in every way; fails if it
    /// decides about more than which endpoint it is, or prefers one.
    pub fn fate(&self, packet: &Packet, is_own: &dyn Fn(IpAddr) -> bool) -> Result<Fate> {
        merge(&self.runs(packet, is_own, &[])?)
    }

    /// Whether wherever `packet` is led, the next one of this client is led there, too, by what the
    /// rules remember.
    pub fn keeps_clients(&self, packet: &Packet, is_own: &dyn Fn(IpAddr) -> bool) -> Result<bool> {
        for run in self.runs(packet, is_own, &[])? {
            let next = self.runs(packet, is_own, &run.kept)?;
            if next.iter().any(|next| next.end != run.end) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn runs(
        &self,
        packet: &Packet,
        is_own: &dyn Fn(IpAddr) -> bool,
        kept: &[Kept],
    ) -> Result<Vec<Run>> {
        walk::every_way(&self.tables, &packet.canonical(), is_own, kept)
    }
}

/// One fate of all ways that a packet may go.
fn merge(runs: &[Run]) -> Result<Fate> {
    let fate = |end: &End| match *end {
        End::Dropped => Fate::Dropped,
        End::Rejected => Fate::Rejected,
        End::Untouched => Fate::Untouched,
        End::Led(to, masqueraded) => Fate::Endpoints([(to, masqueraded)].into()),
    };
    let mut times = BTreeMap::new();
    let mut merged: Option<Fate> = None;
    for run in runs {
        let fate = fate(&run.end);
        if let Fate::Endpoints(endpoints) = &fate {
            for endpoint in endpoints.keys() {
                *times.entry(*endpoint).or_insert(0) += 1;
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
    let counts: Vec<u32> = times.into_values().collect();
    ensure!(
        counts.windows(2).all(|two| two[0] == two[1]),
        "some endpoints are chosen more often than others"
    );
    merged.context("there is no way at all")
}
#[cfg(test)]
mod tests;
