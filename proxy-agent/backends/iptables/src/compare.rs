//! How tables differ from what they should be, and what makes them so. Pure.

use std::sync::Arc;

use proxy_model::{Difference, DifferenceKind};

use crate::{
    fixed,
    names::is_of_service,
    restore::Restore,
    rule::Rule,
    saved::{Saved, canonical},
    table::{LOCALNET, MARK_FOREIGN, SERVICES, TRIAL, Table, UNSERVED_NODE_PORTS},
    wanted::Wanted,
};

/// What a comparison finds.
#[derive(Debug, Default)]
pub struct Comparison {
    /// What is to be written.
    pub restore: Restore,
    /// The chains that differ.
    pub differences: Vec<Difference>,
    /// Nothing of ours, or of kube-proxy's, was there.
    pub is_fresh: bool,
}

/// Compares what is wanted with what was found. Chains and rules of others are not looked at.
pub fn compare(wanted: &Wanted, found: &Saved) -> Comparison {
    let mut comparison = Comparison {
        is_fresh: found.chain(Table::Nat, SERVICES).is_none(),
        ..Comparison::default()
    };
    for (table, chains) in &wanted.tables {
        for (name, rules) in chains {
            let there = found.chain(*table, name);
            let is_same = there.is_some_and(|there| {
                let shown = rules.iter().map(|rule| canonical(rule.as_str()));
                there.len() == rules.len() && shown.zip(there).all(|(ours, theirs)| ours == *theirs)
            });
            if !is_same {
                comparison.restore.chain(*table, name, rules);
                comparison.differ(*table, name, Some(rules), there);
            }
        }
    }
    comparison.jumps(wanted, found);
    comparison.remove(wanted, found);
    comparison
}

impl Comparison {
    /// What leads to our chains stands in chains of others, before their rules.
    fn jumps(&mut self, wanted: &Wanted, found: &Saved) {
        let has_localnet = |table: Table| {
            let chains = wanted.tables.get(&table);
            chains.is_some_and(|chains| chains.contains_key(LOCALNET))
        };
        let localnet = fixed::localnet_jumps();
        // Each is put before all others: the last one first.
        for jump in fixed::jumps().iter().rev().chain(&localnet) {
            let (table, chain) = jump.at;
            let is_wanted = jump.rule.target() != Some(LOCALNET) || has_localnet(table);
            let wanted = canonical(jump.rule.as_str());
            let there = found.chain(table, chain).unwrap_or_default();
            let copies = there.iter().filter(|one| **one == wanted).count();
            for _ in usize::from(is_wanted)..copies {
                self.restore.delete(table, chain, &wanted);
                let surplus = std::slice::from_ref(&wanted);
                self.differ(table, chain, None, Some(surplus));
            }
            if is_wanted && copies == 0 {
                self.restore.insert(table, chain, &jump.rule);
                let rule = std::slice::from_ref(&jump.rule);
                self.differ(table, chain, Some(rule), None);
            }
        }
    }

    fn remove(&mut self, wanted: &Wanted, found: &Saved) {
        let localnet = fixed::localnet_jumps().map(|jump| (jump.at, canonical(jump.rule.as_str())));
        for (table, chains) in &found.tables {
            let ours = wanted.tables.get(table);
            let is_wanted = |name: &str| ours.is_some_and(|ours| ours.contains_key(name));
            let is_own = |name: &str| is_wanted(name) || is_ours(*table, name);
            let mut stale: Vec<&Arc<str>> = chains
                .keys()
                .filter(|name| is_own(name) && !is_wanted(name))
                .collect();
            stale.sort_unstable();
            let is_jump = |chain: &str, rule: &Rule| {
                let mut jumps = localnet.iter();
                jumps.any(|((of, from), jump)| of == table && *from == chain && jump == rule)
            };
            let led_to = found.led_to(*table, |chain, rule| is_own(chain) || is_jump(chain, rule));
            for name in stale {
                let there = found.chain(*table, name).unwrap_or_default();
                if led_to.contains(&**name) {
                    // It cannot go. Empty, it does nothing.
                    if !there.is_empty() {
                        self.restore.chain(*table, name, &[]);
                        self.differ(*table, name, None, Some(there));
                    }
                    continue;
                }
                self.restore.remove(*table, name);
                self.differ(*table, name, None, Some(there));
            }
        }
    }

    fn differ(
        &mut self,
        table: Table,
        name: &str,
        wanted: Option<&[Rule]>,
        found: Option<&[Rule]>,
    ) {
        let told = |rules: &[Rule]| {
            let all: Vec<_> = rules.iter().map(Rule::as_str).collect();
            all.join("\n")
        };
        self.differences.push(Difference {
            object: format!("{} {name}", table.name()),
            kind: match (wanted, found) {
                (_, None) => DifferenceKind::Missing,
                (None, Some(_)) => DifferenceKind::Unexpected,
                (Some(_), Some(_)) => DifferenceKind::Changed,
            },
            service: None,
            wanted: wanted.map(told),
            found: found.map(told),
        });
    }
}

/// Whether this is a chain that is ours as soon as it is there, and that not every state has.
pub fn is_ours(table: Table, name: &str) -> bool {
    match table {
        Table::Mangle => name == LOCALNET,
        Table::Filter => [UNSERVED_NODE_PORTS, LOCALNET, TRIAL].contains(&name),
        Table::Nat => is_of_service(name) || name == MARK_FOREIGN || name == TRIAL,
    }
}
