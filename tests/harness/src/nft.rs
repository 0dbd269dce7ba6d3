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
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use anyhow::{Context as _, Result};
use proxy_model::{IpFamily, Protocol, oracle::Packet};

use crate::traced::{Run, Traced};

pub use walk::Kept;

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
}

impl Traced for Ruleset {
    type Kept = Kept;

    fn runs(
        &self,
        packet: &Packet,
        is_own: &dyn Fn(IpAddr) -> bool,
        kept: &[Kept],
    ) -> Result<Vec<Run<Kept>>> {
        walk::every_way(&self.tables, &packet.canonical(), is_own, kept)
    }
}

#[cfg(test)]
mod tests;
