//! What a change comes to: chains whose rules it changes, and no others (KEP-3453). Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proxy_model::{Change, ChangeSet, NodeState, ServicePortKey};

use crate::{
    compile::{Compiled, compile},
    facts::Facts,
    restore::Restore,
    rule::Rule,
    table::{Index, NODE_PORTS, Table},
};

/// Follows `change`, which leads from `before` to `now` and touches no fact of the node: what must be written.
/// Service ports that are `refused` count as not there; one that changes is none of them.
///
/// Costs what changed and, if that changes a chain that all Services share, the rules of that chain.
pub fn follow(
    facts: &Facts,
    refused: &BTreeSet<ServicePortKey>,
    before: &NodeState,
    now: &NodeState,
    change: &ChangeSet,
) -> Restore {
    let mut restore = Restore::new();
    let mut kinds = BTreeSet::new();
    let mut refuses_more = false;
    let mut growth: BTreeMap<Table, isize> = BTreeMap::new();
    for change in &change.changes {
        let key = change.key();
        if key.family != facts.family {
            continue;
        }
        let of = |state: &NodeState| {
            let service = state.services.get(key)?;
            Some(compile(facts, key, service))
        };
        let old = of(before)
            .filter(|_| !refused.contains(key))
            .unwrap_or_default();
        let new = match change {
            Change::Upsert { .. } => of(now).unwrap_or_default(),
            Change::Delete { .. } => Compiled::default(),
        };
        for (one, rules) in [(&old, -1), (&new, 1)] {
            for table in tables(facts, one) {
                *growth.entry(table).or_default() += rules;
            }
        }
        refuses_more |= refusals(&new).any(|one| !refusals(&old).any(|other| other == one));
        kinds.extend(changed(&old, &new));
        chains(&mut restore, old.chains, &new.chains);
    }
    if !kinds.is_empty() {
        let still = refused
            .iter()
            .filter(|key| !change.changes.iter().any(|one| one.key() == *key));
        let refused = still.cloned().collect();
        let indexed = facts.indexed(now, &refused, &facts.beside(&kinds));
        for ((table, name), rules) in facts.shared(indexed) {
            restore.chain(table, &name.into(), &rules);
        }
    }
    let (checks, checked) = (facts.health_checks(now), facts.health_checks(before));
    if checks != checked {
        restore.chain(Table::Filter, &NODE_PORTS.into(), &checks);
        let count = |rules: Vec<Rule>| isize::try_from(rules.len()).unwrap_or(isize::MAX);
        restore.grow(Table::Filter, count(checks) - count(checked));
    }
    for (table, growth) in growth {
        restore.grow(table, growth);
    }
    if !refuses_more {
        restore.lead_first();
    }
    restore
}

/// The table of each rule.
fn tables(facts: &Facts, compiled: &Compiled) -> impl Iterator<Item = Table> {
    let shared = compiled
        .index
        .iter()
        .map(|(kind, _)| facts.chain_of(*kind).0);
    let own = compiled.chains.iter().flat_map(|(_, rules)| rules);
    shared.chain(own.map(|_| Table::Nat))
}

/// What is refused or dropped.
fn refusals(compiled: &Compiled) -> impl Iterator<Item = &(Index, Rule)> {
    let leading = [Index::Services, Index::NodePorts];
    let rules = compiled.index.iter();
    rules.filter(move |(kind, _)| !leading.contains(kind))
}

/// In which chains that all share rules differ.
fn changed(old: &Compiled, new: &Compiled) -> impl Iterator<Item = Index> {
    let of = |compiled: &Compiled, kind| -> Vec<Rule> {
        let rules = compiled.index.iter().filter(|(one, _)| *one == kind);
        rules.map(|(_, rule)| rule.clone()).collect()
    };
    let differ = move |kind: &Index| of(old, *kind) != of(new, *kind);
    Index::ALL.into_iter().filter(differ)
}

fn chains(restore: &mut Restore, old: Vec<(Arc<str>, Vec<Rule>)>, new: &[(Arc<str>, Vec<Rule>)]) {
    let mut old: BTreeMap<_, _> = old.into_iter().collect();
    for (name, rules) in new {
        if old.remove(name).as_ref() != Some(rules) {
            restore.chain(Table::Nat, name, rules);
        }
    }
    for name in old.keys() {
        restore.remove(Table::Nat, name);
    }
}
