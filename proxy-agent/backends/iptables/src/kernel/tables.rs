//! The tables of one family: what is in force there, and how that becomes something else.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use proxy_model::{ChangeSet, Difference, IpFamily, NodeState, ServicePortKey};

use super::{
    accounting, localnet,
    programs::{ProgramError, Programs},
    refused,
};
use crate::{
    compare::{Comparison, compare},
    facts::{Facts, IptablesOptions, Localnet},
    fixed, plan,
    restore::Restore,
    rule::Rule,
    saved::{Saved, canonical},
    table::{LOCALNET, SERVICES, Table},
    wanted::Wanted,
};

/// The tables of one family.
#[derive(Debug)]
pub struct Tables {
    /// Which.
    pub family: IpFamily,
    programs: Programs,
    options: IptablesOptions,
    /// What is in force besides Services; `None` when tables must be read first.
    facts: Option<Facts>,
    /// Service ports that the kernel, or the program, does not take, each with the reason.
    refused: BTreeMap<ServicePortKey, String>,
    /// The host could be told to route packets from loopback addresses when that was tried last.
    can_open: bool,
    /// How many rules are ours, by table.
    pub rules: BTreeMap<Table, Rules>,
}

/// How many rules of ours are in a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rules {
    /// In force.
    pub there: usize,
    /// Written last.
    pub written: usize,
}

/// What came of writing a whole state.
#[derive(Debug, Default)]
pub struct Whole {
    /// What differed.
    pub differences: Vec<Difference>,
    /// Chains and rules that were written.
    pub writes: usize,
    /// The tables in which these are.
    pub written: Vec<(IpFamily, Table)>,
    /// Rules of an earlier run, or of kube-proxy, were there.
    pub adopted: bool,
    /// UDP frontends that were served and are no more.
    pub abandoned: Vec<SocketAddr>,
}

impl Tables {
    /// Those of a family, of which nothing is known yet.
    pub fn new(family: IpFamily, programs: Programs, options: IptablesOptions) -> Self {
        Self {
            family,
            programs,
            options,
            facts: None,
            refused: BTreeMap::new(),
            can_open: true,
            rules: BTreeMap::new(),
        }
    }

    /// Whether rules name the kernel's counters of packets.
    pub const fn counts(&self) -> bool {
        self.options.counters
    }

    /// Service ports that could not be programmed.
    pub fn refused(&self) -> &BTreeMap<ServicePortKey, String> {
        &self.refused
    }

    /// What is there is not known any more.
    pub fn forget(&mut self) {
        self.facts = None;
    }

    /// The one that `state` needs. How endpoints are written stays as it is while something is in force.
    fn facts_for(&self, state: &NodeState) -> Facts {
        let mut facts = Facts::of(state, self.family, self.options);
        if let Some(present) = &self.facts {
            facts.many = present.many;
            facts.localnet = facts.localnet.opened(present.localnet.is_opened());
        }
        facts
    }

    fn refused_keys(&self) -> BTreeSet<ServicePortKey> {
        self.refused.keys().cloned().collect()
    }

    /// Whether a change can be followed without a look at the whole.
    pub fn can_follow(&self, state: &NodeState, change: &ChangeSet) -> bool {
        let Some(facts) = &self.facts else {
            return false;
        };
        !change.node || self.facts_for(state) == *facts
    }

    /// Writes what a change comes to, as it follows from the state before. Returns that.
    pub fn follow(
        &mut self,
        before: &NodeState,
        now: &NodeState,
        change: &ChangeSet,
    ) -> Result<Restore, ProgramError> {
        let Some(facts) = &self.facts else {
            self.whole(now)?;
            return Ok(Restore::new());
        };
        let restore = plan::follow(facts, &self.refused_keys(), before, now, change);
        self.write(&restore)?;
        for table in restore.tables() {
            let rules = self.rules.entry(table).or_default();
            rules.there = rules.there.saturating_add_signed(restore.growth(table));
        }
        for change in &change.changes {
            self.refused.remove(change.key());
        }
        Ok(restore)
    }

    fn write(&mut self, restore: &Restore) -> Result<(), ProgramError> {
        if restore.is_empty() {
            return Ok(());
        }
        self.programs.restore(self.family, &restore.text())?;
        for table in Table::ALL {
            self.rules.entry(table).or_default().written = restore.rules(table);
        }
        Ok(())
    }

    /// Compares the tables with what they should be.
    pub fn compare(
        &self,
        state: &NodeState,
    ) -> Result<(Facts, Saved, Wanted, Comparison), ProgramError> {
        let found = self.programs.save(self.family, None)?;
        let mut facts = self.facts_for(state);
        if self.family == IpFamily::V4 {
            let is_to_be = facts.localnet.is_served() && localnet::is_missing();
            facts.localnet = facts.localnet.opened(is_to_be || localnet::is_ours());
        }
        let wanted = Wanted::of(&facts, state, &self.refused_keys());
        let comparison = compare(&wanted, &found);
        Ok((facts, found, wanted, comparison))
    }

    /// Whether the host routes packets from loopback addresses otherwise than when rules were written. That it does not,
    /// and cannot be told to, is as it is.
    pub fn differs_from_localnet(&self) -> bool {
        let Some(facts) = self.facts.as_ref().filter(|_| self.family == IpFamily::V4) else {
            return false;
        };
        let is_missing = localnet::is_missing();
        match facts.localnet {
            Localnet::Unserved => localnet::is_ours(),
            Localnet::Served => localnet::is_ours() || is_missing && self.can_open,
            Localnet::Opened => !localnet::is_ours() && (!is_missing || self.can_open),
            Localnet::Left => !localnet::is_ours(),
        }
    }

    /// Neighbours may reach what listens on loopback addresses alone, because what keeps them from that is gone: one
    /// table is read to find out.
    pub fn is_unguarded(&self) -> bool {
        if self.family != IpFamily::V4 || !localnet::is_ours() {
            return false;
        }
        let Ok(found) = self.programs.save(self.family, Some(Table::Mangle)) else {
            return true;
        };
        let has = |chain, target, count| {
            let rules = found.chain(Table::Mangle, chain).unwrap_or_default();
            let to = rules.iter().filter(|one| one.target() == Some(target));
            to.count() >= count
        };
        !has("PREROUTING", LOCALNET, 1) || !has(LOCALNET, "DROP", fixed::MARTIANS)
    }

    /// Reads the tables, and writes what differs. Service ports that were refused are tried again.
    pub fn whole(&mut self, state: &NodeState) -> Result<Whole, ProgramError> {
        self.refused.clear();
        let written = match self.attempt_counting(state) {
            Err(error) if error.is_refusal() => {
                self.refused = refused::find(
                    self.family,
                    self.programs,
                    &self.facts_for(state),
                    state,
                    error,
                )?;
                self.attempt(state)
            }
            written => written,
        };
        if written.is_err() {
            self.facts = None;
            if self.is_unguarded() {
                localnet::close();
            }
        }
        written
    }

    /// Reads the tables, and writes what differs from what `state` makes of them, which is in force. Returns that.
    pub fn mend(&mut self, state: &NodeState) -> Result<Vec<Difference>, ProgramError> {
        Ok(self.attempt(state)?.differences)
    }

    /// Without the kernel's counters of packets if it has none, or rules that name them are what it refuses.
    fn attempt_counting(&mut self, state: &NodeState) -> Result<Whole, ProgramError> {
        if !self.options.counters {
            return self.attempt(state);
        }
        let ensured = accounting::ensure();
        let are_usable = ensured.is_ok();
        let reason = match ensured {
            Err(error) => error.to_string(),
            Ok(()) => match self.attempt_twice(state) {
                Err(error) if error.is_refusal() => error.to_string(),
                written => return written,
            },
        };
        self.options.counters = false;
        let written = self.attempt(state);
        match &written {
            // The counters are not to blame.
            Err(error) if error.is_refusal() => self.options.counters = true,
            _ => {
                let family = self.family.as_str();
                tracing::info!(family, reason, "packets not counted");
                // Otherwise one may be somebody else's.
                if are_usable {
                    accounting::remove();
                }
            }
        }
        written
    }

    /// What passes by itself is nobody's fault.
    fn attempt_twice(&mut self, state: &NodeState) -> Result<Whole, ProgramError> {
        match self.attempt(state) {
            Err(error) if error.is_refusal() => self.attempt(state),
            written => written,
        }
    }

    fn attempt(&mut self, state: &NodeState) -> Result<Whole, ProgramError> {
        if self.family == IpFamily::V4 && !self.facts_for(state).localnet.is_served() {
            // Before what keeps others from loopback addresses goes: it stays if this fails.
            localnet::try_to_take_back();
        }
        let (facts, found, wanted, comparison) = self.compare(state)?;
        self.write(&comparison.restore)?;
        if facts.localnet == Localnet::Opened {
            self.can_open = localnet::ensure();
        }
        for (table, chains) in &wanted.tables {
            let rules = chains.values().map(Vec::len).sum();
            self.rules.entry(*table).or_default().there = rules;
        }
        self.facts = Some(facts);
        Ok(Whole {
            differences: comparison.differences,
            writes: comparison.restore.writes(),
            written: (comparison.restore.tables())
                .map(|table| (self.family, table))
                .collect(),
            adopted: !comparison.is_fresh,
            abandoned: abandoned(&found, &wanted),
        })
    }
}

/// UDP frontends that an agent served that did not live to see their Service go.
fn abandoned(found: &Saved, wanted: &Wanted) -> Vec<SocketAddr> {
    let served = |rules: &[Rule]| -> BTreeSet<SocketAddr> {
        rules.iter().filter_map(udp_frontend).collect()
    };
    let there = found.chain(Table::Nat, SERVICES).unwrap_or_default();
    let nat = wanted.tables.get(&Table::Nat);
    let ours = nat.and_then(|nat| nat.get(SERVICES));
    let ours: Vec<_> = ours
        .into_iter()
        .flatten()
        .map(|rule| canonical(rule.as_str()))
        .collect();
    served(there).difference(&served(&ours)).copied().collect()
}

fn udp_frontend(rule: &Rule) -> Option<SocketAddr> {
    let mut words = rule.as_str().split(' ');
    let (mut address, mut port, mut is_udp) = (None, None, false);
    while let Some(word) = words.next() {
        match word {
            "!" => return None,
            "-d" => address = words.next()?.parse().ok(),
            "-p" => is_udp = words.next()? == "udp",
            "--dport" => port = words.next()?.parse().ok(),
            _ => {}
        }
    }
    is_udp.then_some(())?;
    Some(SocketAddr::new(address?, port?))
}
