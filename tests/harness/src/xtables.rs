//! What rules of iptables do with a packet, by their text alone: as `iptables-restore` takes it and
//! `iptables-save` prints it.
//!
//! ```text
//! text ──> tables (chains of rules: matches and a target) ──> walk ──> fate
//!                                                              │ once for each random choice
//! ```
//!
//! Knows the matches and targets that service proxies use, and fails on any other, also in rules that no
//! packet meets. Every packet opens a connection. Asks no kernel, and knows nothing of Services. What it knows of
//! the kernel: which tables are at which hook, that translating is done once, what a target ends.

mod matches;
mod rule;
mod table;
mod walk;

use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use proxy_model::{IpFamily, oracle::Packet};

use crate::traced::{Run, Traced};

pub use walk::Kept;

/// Tables of both families, understood.
#[derive(Debug, Default)]
pub struct Ruleset {
    families: Vec<(IpFamily, table::Tables)>,
}

impl Ruleset {
    /// Understands what is rendered: for each family a line that names its program, and what that is given.
    pub fn rendered(text: &str) -> Result<Self> {
        let mut ruleset = Self::default();
        for part in text.split("# ip").skip(1) {
            let (program, input) = part
                .split_once('\n')
                .context("a program is given nothing")?;
            let family = if program.starts_with("tables-restore") {
                IpFamily::V4
            } else {
                ensure!(
                    program.starts_with("6tables-restore"),
                    "# ip{program} is no program that is known"
                );
                IpFamily::V6
            };
            ruleset.add(family, input)?;
        }
        ensure!(!ruleset.families.is_empty(), "no program is named");
        Ok(ruleset)
    }

    /// Understands tables of a family, of which there must be none yet.
    pub fn add(&mut self, family: IpFamily, text: &str) -> Result<()> {
        let is_known = self.families.iter().any(|(known, _)| *known == family);
        ensure!(!is_known, "there are two rule sets of {family}");
        let tables = table::parse(family, text).with_context(|| family.to_string())?;
        self.families.push((family, tables));
        Ok(())
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
        let packet = packet.canonical();
        let family = IpFamily::of(packet.source);
        let mut families = self.families.iter();
        let found = families.find(|(known, _)| *known == family);
        let (_, tables) = found.with_context(|| format!("no rules of {family}"))?;
        walk::every_way(tables, &packet, is_own, kept)
    }
}

#[cfg(test)]
mod tests;
