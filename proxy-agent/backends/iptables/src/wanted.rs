//! All chains that a state needs, in both tables. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proxy_model::{NodeState, Protocol, ServicePortKey};

use crate::{
    compile::{self, compile},
    facts::Facts,
    fixed,
    names::Names,
    rule::{Match, Rule},
    table::{
        At, CANARY, EXTERNAL_SERVICES, FIREWALL, Index, NODE_PORTS, OWNER, SERVICES, Table,
        UNSERVED_NODE_PORTS,
    },
};

/// Chains of one table and their rules.
pub type Chains = BTreeMap<Arc<str>, Vec<Rule>>;

/// The rules in chains that all Services share, in the order in which packets meet them.
pub type Indexed = BTreeMap<Index, Vec<Rule>>;

impl Facts {
    /// The rules of all Services but those that are `refused`, in the chains of these kinds.
    pub fn indexed(
        &self,
        state: &NodeState,
        refused: &BTreeSet<ServicePortKey>,
        kinds: &BTreeSet<Index>,
    ) -> Indexed {
        let mut indexed: Indexed = kinds.iter().map(|kind| (*kind, Vec::new())).collect();
        for (key, service) in &state.services {
            if key.family != self.family || refused.contains(key) {
                continue;
            }
            for (kind, rule) in compile::index(self, key, service) {
                if let Some(rules) = indexed.get_mut(&kind) {
                    rules.push(rule);
                }
            }
        }
        indexed
    }

    /// The chain in which rules of this kind are.
    pub const fn chain_of(&self, kind: Index) -> At {
        match kind {
            Index::Firewall => (Table::Filter, FIREWALL),
            Index::Unserved => (Table::Filter, SERVICES),
            Index::UnservedNodePort if !self.on_all => (Table::Filter, UNSERVED_NODE_PORTS),
            Index::UnservedExternal | Index::UnservedNodePort => (Table::Filter, EXTERNAL_SERVICES),
            Index::Services => (Table::Nat, SERVICES),
            Index::NodePorts => (Table::Nat, NODE_PORTS),
        }
    }

    /// Which kinds of rules are in the chains in which those of `kinds` are.
    pub fn beside(&self, kinds: &BTreeSet<Index>) -> BTreeSet<Index> {
        let chains: BTreeSet<_> = kinds.iter().map(|kind| self.chain_of(*kind)).collect();
        let all = Index::ALL.into_iter();
        all.filter(|kind| chains.contains(&self.chain_of(*kind)))
            .collect()
    }

    /// The chains that all Services share, of which the rules of Services are `indexed`: every chain that is
    /// named there, whole.
    pub fn shared(&self, indexed: Indexed) -> BTreeMap<At, Vec<Rule>> {
        let mut chains: BTreeMap<At, Vec<Rule>> = BTreeMap::new();
        for (kind, rules) in indexed {
            let at = self.chain_of(kind);
            let chain = chains.entry(at).or_default();
            if chain.is_empty() && at.0 == Table::Filter {
                if kind == Index::Firewall {
                    chain.extend(fixed::begins_nothing(self));
                }
                chain.extend(fixed::exempt(self, at.1));
            }
            chain.extend(rules);
        }
        for (at, rules) in fixed::behind(self) {
            if let Some(chain) = chains.get_mut(&at) {
                chain.extend(rules);
            }
        }
        chains
    }

    /// Chains that are as they are whatever Services there are.
    pub fn fixed(&self, state: &NodeState) -> BTreeMap<At, Vec<Rule>> {
        let mut chains: BTreeMap<_, _> = fixed::chains(self).into_iter().collect();
        for table in Table::ALL {
            chains.insert((table, CANARY), Vec::new());
            chains.insert((table, OWNER), Vec::new());
        }
        chains.insert((Table::Filter, NODE_PORTS), self.health_checks(state));
        chains
    }

    /// Load balancers may query, whatever else this host refuses.
    pub fn health_checks(&self, state: &NodeState) -> Vec<Rule> {
        let of_family = state
            .health_checks
            .iter()
            .filter(|(key, _)| key.family == self.family);
        of_family
            .map(|(key, check)| {
                let service = (state.services.keys())
                    .find(|one| one.service == key.service)
                    .map_or_else(
                        || key.service.to_string(),
                        |key| Names::of(key).text().to_owned(),
                    );
                let comment = format!("{service} health check node port");
                let all = Match::all().protocol(Protocol::Tcp).comment(&comment);
                all.port(check.port.get()).jump("ACCEPT")
            })
            .collect()
    }
}

/// All chains of the tables.
#[derive(Debug)]
pub struct Wanted {
    /// By table.
    pub tables: BTreeMap<Table, Chains>,
}

impl Wanted {
    /// What `state` needs, without the Services that are `refused`.
    pub fn of(facts: &Facts, state: &NodeState, refused: &BTreeSet<ServicePortKey>) -> Self {
        let kinds = Index::ALL.into_iter().collect();
        let mut tables: BTreeMap<Table, Chains> = BTreeMap::new();
        let shared = facts.shared(facts.indexed(state, refused, &kinds));
        for ((table, name), rules) in facts.fixed(state).into_iter().chain(shared) {
            tables.entry(table).or_default().insert(name.into(), rules);
        }
        let nat = tables.entry(Table::Nat).or_default();
        for (key, service) in &state.services {
            if key.family == facts.family && !refused.contains(key) {
                nat.extend(compile(facts, key, service).chains);
            }
        }
        Self { tables }
    }
}
