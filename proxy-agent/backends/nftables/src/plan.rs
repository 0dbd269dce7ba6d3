//! What is to be written into the table of one family, and how that follows from a change.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::Arc,
};

use proxy_model::{Change, ChangeSet, NodeState, Protocol};

use super::{
    compile::{Compiled, compile},
    facts::Facts,
    fixed,
    key::Key,
    ruleset::{Ranges, Rule, Value},
    sets::Set,
    wanted::{Elements, Wanted},
};

/// What is to be written, all at once. Whatever is named here is written in this order.
#[derive(Debug, Default)]
pub struct Plan {
    /// The table is made anew, whatever is there.
    pub fresh: bool,
    /// Chains to be made, with their rules.
    pub new_chains: Vec<(Arc<str>, Vec<Rule>)>,
    /// Chains whose rules are replaced.
    pub rewritten: Vec<(Arc<str>, Vec<Rule>)>,
    /// Named ranges to be made.
    pub new_ranges: Vec<Ranges>,
    /// Elements to be taken away.
    pub removed: Vec<(Set, Key, Value)>,
    /// Elements to be added, also in the place of others that are taken away.
    pub added: Vec<(Set, Key, Value)>,
    /// Chains that nothing leads to any more. They are deleted later: on kernels before 6.2 a
    /// chain cannot be deleted together with the element that led to it.
    pub stale_chains: Vec<Arc<str>>,
    /// Named ranges that nothing uses any more, likewise.
    pub stale_ranges: Vec<Arc<str>>,
}

impl Plan {
    /// Kernel objects that are written: chains, rules, sets and elements.
    pub fn writes(&self) -> usize {
        let chains = self.new_chains.iter();
        let chains: usize = chains.map(|(_, rules)| 1 + rules.len()).sum();
        let rewritten: usize = self
            .rewritten
            .iter()
            .map(|(_, rules)| rules.len().max(1))
            .sum();
        let ranges = self.new_ranges.iter();
        let ranges: usize = ranges.map(|ranges| 1 + ranges.ranges.len()).sum();
        usize::from(self.fresh)
            + chains
            + rewritten
            + ranges
            + self.removed.len()
            + self.added.len()
    }

    /// UDP frontends that somebody else has written, and that nothing asks for: those of an agent
    /// that did not live to see their Service go.
    pub fn abandoned(&self) -> impl Iterator<Item = SocketAddr> {
        let added = self.added.iter().map(|(set, key, _)| (*set, *key));
        let added: HashSet<_> = added.collect();
        self.removed.iter().filter_map(move |(set, key, _)| {
            let is_frontend = matches!(set, Set::Services | Set::Unserved);
            if !is_frontend || added.contains(&(*set, *key)) {
                return None;
            }
            let (address, protocol) = key.frontend()?;
            (protocol == Protocol::Udp).then_some(address)
        })
    }

    /// Everything, into a table that is made anew.
    pub fn whole(wanted: &Wanted, elements: &Elements) -> Self {
        Self {
            fresh: true,
            new_chains: wanted.rules().into_iter().collect(),
            new_ranges: wanted.ranges.values().map(|(one, _)| one.clone()).collect(),
            added: elements
                .iter()
                .map(|((set, key), value)| (*set, *key, value.clone()))
                .collect(),
            ..Self::default()
        }
    }
}

/// Follows `change`, which leads from `before` to `now`: `wanted` becomes what `now` needs, and what
/// must be written is returned. Costs what changed.
pub fn follow(
    wanted: &mut Wanted,
    before: &NodeState,
    now: &NodeState,
    change: &ChangeSet,
) -> Plan {
    let mut plan = Plan::default();
    let mut moves = Moves::default();
    if change.node {
        let facts = Facts::of(now, wanted.facts.family, wanted.facts.options);
        plan.rewritten = wanted.under(&facts);
        moves.node_ips(&wanted.facts, &facts);
        wanted.fixed = fixed::chains(&facts);
        wanted.facts = facts;
    }
    for change in &change.changes {
        let key = change.key();
        if key.family != wanted.facts.family {
            continue;
        }
        let old = before.services.get(key);
        if let Some(old) = old {
            moves.leave(compile(key, old));
        }
        if let Change::Upsert { key, state } = change {
            moves.enter(compile(key, state));
        }
    }
    moves.settle(wanted, &mut plan);
    plan
}

/// What Service ports no longer need and what they need now, before it is known what that comes to:
/// one may give another its address.
#[derive(Default)]
struct Moves {
    elements: HashMap<(Set, Key), Move>,
    chains: HashMap<Arc<str>, (Option<super::chains::ServiceChain>, i64)>,
    ranges: HashMap<Arc<str>, (Option<Ranges>, i64)>,
}

#[derive(Default)]
struct Move {
    leaves: Option<Value>,
    enters: Option<Value>,
    /// How many more need it than before.
    balance: i64,
}

impl Moves {
    fn leave(&mut self, compiled: Compiled) {
        for (set, key, value) in compiled.elements {
            let entry = self.elements.entry((set, key)).or_default();
            entry.balance -= 1;
            entry.leaves = Some(value);
        }
        for chain in compiled.chains {
            self.chains.entry(chain.name()).or_default().1 -= 1;
        }
        if let Some(ranges) = compiled.ranges {
            self.ranges.entry(ranges.name).or_default().1 -= 1;
        }
    }

    fn enter(&mut self, compiled: Compiled) {
        for (set, key, value) in compiled.elements {
            let entry = self.elements.entry((set, key)).or_default();
            entry.balance += 1;
            entry.enters = Some(value);
        }
        for chain in compiled.chains {
            let entry = self.chains.entry(chain.name()).or_default();
            entry.1 += 1;
            entry.0 = Some(chain);
        }
        if let Some(ranges) = compiled.ranges {
            let entry = self.ranges.entry(Arc::clone(&ranges.name)).or_default();
            entry.1 += 1;
            entry.0 = Some(ranges);
        }
    }

    fn node_ips(&mut self, before: &Facts, now: &Facts) {
        let key = |ip: &std::net::IpAddr| (Set::NodeIps, Key::new().address(*ip));
        for ip in &before.node_ips {
            self.elements.entry(key(ip)).or_default().leaves = Some(Value::None);
        }
        for ip in &now.node_ips {
            self.elements.entry(key(ip)).or_default().enters = Some(Value::None);
        }
    }

    fn settle(self, wanted: &mut Wanted, plan: &mut Plan) {
        for (name, (chain, balance)) in self.chains {
            let held = wanted.chains.get(&name).map_or(0, |(_, count)| *count);
            let count = counted(held, balance);
            if count == 0 {
                wanted.chains.remove(&name);
                plan.stale_chains.push(name);
            } else if let Some((_, held)) = wanted.chains.get_mut(&name) {
                *held = count;
            } else if let Some(chain) = chain {
                let rules = chain.rules(&wanted.facts);
                plan.new_chains.push((Arc::clone(&name), rules));
                wanted.chains.insert(name, (chain, count));
            }
        }
        for (name, (ranges, balance)) in self.ranges {
            let held = wanted.ranges.get(&name).map_or(0, |(_, count)| *count);
            let count = counted(held, balance);
            if count == 0 {
                wanted.ranges.remove(&name);
                plan.stale_ranges.push(name);
            } else if let Some((_, held)) = wanted.ranges.get_mut(&name) {
                *held = count;
            } else if let Some(ranges) = ranges {
                plan.new_ranges.push(ranges.clone());
                wanted.ranges.insert(name, (ranges, count));
            }
        }
        for (place, moved) in self.elements {
            settle_element(place, moved, wanted, plan);
        }
    }
}

fn settle_element(place: (Set, Key), moved: Move, wanted: &mut Wanted, plan: &mut Plan) {
    let (set, key) = place;
    let (leaves, enters) = if set.is_shared() {
        let held = wanted.shared.get(&place).copied().unwrap_or(0);
        let count = counted(held, moved.balance);
        match count {
            0 => drop(wanted.shared.remove(&place)),
            _ => drop(wanted.shared.insert(place, count)),
        }
        let exists = |count: u32| (count > 0).then_some(Value::None);
        (exists(held), exists(count))
    } else {
        (moved.leaves, moved.enters)
    };
    if leaves != enters {
        plan.removed.extend(leaves.map(|value| (set, key, value)));
        plan.added.extend(enters.map(|value| (set, key, value)));
    }
}

fn counted(held: u32, balance: i64) -> u32 {
    u32::try_from(i64::from(held) + balance).unwrap_or(0)
}
