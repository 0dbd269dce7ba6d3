//! What the table of one family should hold for a state: all of it. What is printed, what is
//! written at first, and what is compared with the kernel.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use proxy_model::{IpFamily, NodeState};

use super::{
    chains::ServiceChain,
    compile::compile,
    facts::{Facts, NftablesOptions},
    fixed::{self, FixedChain},
    key::Key,
    ruleset::{Ranges, Rule, Value},
    sets::Set,
};

/// Elements of all sets.
pub type Elements = HashMap<(Set, Key), Value>;

/// What a table should hold, apart from its elements: there may be a million, and what a Service
/// needs of them follows from its state.
#[derive(Debug)]
pub struct Wanted {
    /// What no Service decides.
    pub facts: Facts,
    /// Chains that every table has.
    pub fixed: Vec<FixedChain>,
    /// Chains that Services need, with how many need each.
    pub chains: BTreeMap<Arc<str>, (ServiceChain, u32)>,
    /// Named ranges, with how many Service ports need each.
    pub ranges: BTreeMap<Arc<str>, (Ranges, u32)>,
    /// How many Service ports need an element of a set that is shared.
    pub shared: HashMap<(Set, Key), u32>,
}

impl Wanted {
    /// What `state` needs in the table of `family`, with its elements.
    pub fn of(state: &NodeState, family: IpFamily, options: NftablesOptions) -> (Self, Elements) {
        let facts = Facts::of(state, family, options);
        let mut elements = Elements::new();
        let mut wanted = Self {
            fixed: fixed::chains(&facts),
            chains: BTreeMap::new(),
            ranges: BTreeMap::new(),
            shared: HashMap::new(),
            facts,
        };
        for (key, service) in &state.services {
            if key.family != family {
                continue;
            }
            let compiled = compile(key, service);
            for (set, key, value) in compiled.elements {
                if set.is_shared() {
                    *wanted.shared.entry((set, key)).or_default() += 1;
                }
                // The first one has it, should two Services claim one frontend.
                elements.entry((set, key)).or_insert(value);
            }
            for chain in compiled.chains {
                wanted.chains.entry(chain.name()).or_insert((chain, 0)).1 += 1;
            }
            if let Some(ranges) = compiled.ranges {
                let name = Arc::clone(&ranges.name);
                wanted.ranges.entry(name).or_insert((ranges, 0)).1 += 1;
            }
        }
        for ip in &wanted.facts.node_ips {
            let key = (Set::NodeIps, Key::new().address(*ip));
            elements.insert(key, Value::None);
        }
        (wanted, elements)
    }

    /// Name and rules of every chain.
    pub fn rules(&self) -> BTreeMap<Arc<str>, Vec<Rule>> {
        let fixed = self.fixed.iter();
        let fixed = fixed.map(|chain| (chain.name.into(), chain.rules.clone()));
        let chains = self.chains.iter();
        let chains = chains.map(|(name, (chain, _))| (Arc::clone(name), chain.rules(&self.facts)));
        fixed.chain(chains).collect()
    }

    /// Chains whose rules `facts` would change, with their new rules, and the difference in where
    /// NodePorts answer.
    pub fn under(&self, facts: &Facts) -> Vec<(Arc<str>, Vec<Rule>)> {
        let fixed = fixed::chains(facts).into_iter();
        let fixed = self.fixed.iter().zip(fixed);
        let fixed = fixed
            .filter(|(before, now)| before.rules != now.rules)
            .map(|(_, now)| (now.name.into(), now.rules));
        let chains = self.chains.iter().filter_map(|(name, (chain, _))| {
            let rules = chain.rules(facts);
            (rules != chain.rules(&self.facts)).then(|| (Arc::clone(name), rules))
        });
        fixed.chain(chains).collect()
    }

    /// Names of all chains.
    pub fn chain_names(&self) -> BTreeSet<Arc<str>> {
        let fixed = self.fixed.iter().map(|chain| chain.name.into());
        fixed.chain(self.chains.keys().cloned()).collect()
    }
}
