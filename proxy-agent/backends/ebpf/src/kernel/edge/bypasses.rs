//! Looks for what programs on devices would bypass, again and again: somebody may start a firewall
//! later.

mod xtables;

use std::{
    fs, io,
    sync::Arc,
    time::{Duration, Instant},
};

use proxy_netlink::{ruleset, xfrm};

use crate::bypass::{self, Bypass, Rules, What, expressions};

/// How often rules are looked at.
const EVERY: Duration = Duration::from_secs(5);
/// What the names of our own tables begin with: they make way for the programs.
const OURS: &str = "culvert";

/// What was found, and when.
#[derive(Default)]
pub struct Bypasses {
    looked: Option<Instant>,
    /// The rules of nftables that `of_nftables` is of.
    generation: Option<u32>,
    of_nftables: Vec<Rules>,
    found: Arc<[Bypass]>,
}

impl Bypasses {
    /// What is known, looked at anew if that is due.
    pub fn known(&mut self) -> Arc<[Bypass]> {
        if self.looked.is_none_or(|at| at.elapsed() >= EVERY) {
            self.found = self.look().into();
            self.looked = Some(Instant::now());
        }
        Arc::clone(&self.found)
    }

    /// Looks at everything.
    fn look(&mut self) -> Vec<Bypass> {
        let mut unknown = Vec::new();
        let mut failed = |what: &str, error: io::Error| {
            unknown.push(Bypass {
                device: None,
                what: What::Unknown(format!("{what} could not be looked at: {error}")),
            });
        };
        if let Err(error) = self.read_nftables() {
            failed("the rules of nftables", error);
        }
        let legacy = xtables::read().unwrap_or_else(|error| {
            failed("the rules of iptables-legacy", error);
            Vec::new()
        });
        let has_policies = xfrm::has_policies().unwrap_or_else(|error| {
            failed("policies of IPsec", error);
            false
        });
        let mut found = bypass::find(&self.of_nftables);
        found.extend(bypass::find(&legacy));
        found.extend(has_policies.then_some(Bypass {
            device: None,
            what: What::Ipsec,
        }));
        found.extend(unknown);
        found
    }

    /// Reads the rules of nftables, if there are other ones than before.
    fn read_nftables(&mut self) -> io::Result<()> {
        // Older than what is read then.
        let generation = match ruleset::generation() {
            Err(error) if ruleset::is_unknown(&error) => {
                self.of_nftables = Vec::new();
                return Ok(());
            }
            generation => generation?,
        };
        if self.generation == Some(generation) {
            return Ok(());
        }
        let tables = ruleset::read(&ruleset::FAMILIES, |table| table.name.starts_with(OURS))?;
        self.of_nftables = tables
            .iter()
            .map(|(table, chains)| expressions::rules(table, chains))
            .collect();
        self.generation = Some(generation);
        Ok(())
    }
}

/// The names in a list of `/proc/net`; none where the module is not loaded.
fn listed(name: &str) -> io::Result<Vec<String>> {
    match fs::read_to_string(format!("/proc/thread-self/net/{name}")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        names => Ok(names?.lines().map(str::to_owned).collect()),
    }
}
