//! Following changes and computing everything at once must lead to the same table. A table in
//! memory stands for the kernel's: it takes what a kernel would take, and nothing else.

pub(crate) mod walk;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::prelude::*;
use proxy_backend::Translates;
use proxy_model::{IpFamily, NodeState};

use self::walk::{Step, steps};
use super::{
    NftablesOptions,
    chains::{At, Choice, ServiceChain},
    facts::Facts,
    key::Key,
    plan::{self, Plan},
    ruleset::{Rule, Statement, Value, Verdict},
    sets::Set,
    wanted::{Elements, Wanted},
};

const OPTIONS: NftablesOptions = NftablesOptions {
    mark: 0x4000,
    above: Translates::All,
};

/// What a kernel would hold.
#[derive(Debug, Default, PartialEq, Eq)]
struct Table {
    chains: BTreeMap<Arc<str>, Vec<Rule>>,
    ranges: BTreeMap<Arc<str>, Vec<(std::net::IpAddr, std::net::IpAddr)>>,
    elements: BTreeMap<(Set, Key), Value>,
}

impl Table {
    /// Does what a transaction does, and panics where the kernel would refuse it.
    fn write(&mut self, plan: &Plan) {
        if plan.fresh {
            *self = Self::default();
        }
        for ranges in &plan.new_ranges {
            let name = Arc::clone(&ranges.name);
            self.ranges.insert(name, ranges.ranges.clone());
        }
        for (name, rules) in plan.new_chains.iter().chain(&plan.rewritten) {
            self.chains.insert(Arc::clone(name), rules.clone());
        }
        for (set, key, value) in &plan.removed {
            let before = self.elements.remove(&(*set, *key));
            assert_eq!(
                before.as_ref(),
                Some(value),
                "removed from {set:?}: {key:?}"
            );
        }
        for (set, key, value) in &plan.added {
            let before = self.elements.insert((*set, *key), value.clone());
            assert_eq!(before, None, "added to {set:?} a second time: {key:?}");
        }
        self.check();
    }

    /// Deletes what is left over; nothing may lead to it.
    fn tidy(&mut self, plan: &Plan) {
        let depth = |name: &Arc<str>| ServiceChain::depth(name);
        for name in &plan.stale_chains {
            let rules = self.chains[name].iter();
            for statement in rules.flat_map(|rule| &rule.statements) {
                if let Statement::Jump(to) | Statement::Verdict(Verdict::Goto(to)) = statement
                    && plan.stale_chains.contains(to)
                {
                    assert!(depth(name) < depth(to), "{name} is deleted after {to}");
                }
            }
        }
        for name in &plan.stale_chains {
            assert!(self.chains.remove(name).is_some(), "no chain {name}");
        }
        for name in &plan.stale_ranges {
            assert!(self.ranges.remove(name).is_some(), "no ranges {name}");
        }
        self.check();
    }

    /// Whatever is led to is there.
    fn check(&self) {
        let verdict = |verdict: &Verdict| {
            if let Verdict::Goto(chain) = verdict {
                assert!(self.chains.contains_key(chain), "no chain {chain}");
            }
        };
        for value in self.elements.values() {
            if let Value::Verdict(one) = value {
                verdict(one);
            }
        }
        let rules = self.chains.values().flatten();
        for statement in rules.flat_map(|rule| &rule.statements) {
            match statement {
                Statement::Verdict(one) => verdict(one),
                Statement::Jump(chain) => assert!(self.chains.contains_key(chain)),
                Statement::NotIn(ranges) => assert!(self.ranges.contains_key(ranges)),
                _ => {}
            }
        }
    }

    fn of(wanted: &Wanted, elements: &Elements) -> Self {
        let mut table = Self::default();
        table.write(&Plan::whole(wanted, elements));
        table
    }
}

fn whole(state: &NodeState, family: IpFamily) -> (Wanted, Elements) {
    Wanted::of(state, family, OPTIONS)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn following_changes_leads_to_what_computing_at_once_leads_to(steps in steps()) {
        for family in [IpFamily::V4, IpFamily::V6] {
            let mut before = NodeState::default();
            let (mut wanted, elements) = whole(&before, family);
            let mut table = Table::of(&wanted, &elements);
            for Step(now) in &steps {
                let change = before.changes_to(now);
                let plan = plan::follow(&mut wanted, &before, now, &change);
                table.write(&plan);
                table.tidy(&plan);
                let (at_once, elements) = whole(now, family);
                prop_assert_eq!(&table, &Table::of(&at_once, &elements));
                prop_assert_eq!(&wanted.shared, &at_once.shared);
                prop_assert_eq!(&wanted.chains, &at_once.chains);
                before = now.clone();
            }
        }
    }

    #[test]
    fn nothing_changed_is_nothing_to_write(steps in steps()) {
        let Step(state) = &steps[0];
        for family in [IpFamily::V4, IpFamily::V6] {
            let (mut wanted, _) = whole(state, family);
            let plan = plan::follow(&mut wanted, state, state, &state.as_change_set());
            prop_assert_eq!(plan.writes(), 0, "{:?}", plan);
        }
    }
}

#[test]
fn a_change_costs_what_changed() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let tree = steps().new_tree(&mut runner).unwrap();
    let Step(state) = &proptest::strategy::ValueTree::current(&tree)[0];
    let (mut wanted, _) = whole(state, IpFamily::V4);
    let more = walk::with_one_more(state);
    let change = state.changes_to(&more);
    let plan = plan::follow(&mut wanted, state, &more, &change);
    let sets: BTreeSet<_> = plan.added.iter().map(|(set, ..)| *set).collect();
    // A frontend, an endpoint, the ClusterIP, and the endpoint's way back to itself.
    let expected = [Set::Services, Set::Endpoints, Set::ClusterIps, Set::Hairpin];
    assert_eq!(sets, expected.into());
    assert_eq!((plan.added.len(), plan.removed.len()), (4, 0));
}

/// What begins nothing is dropped where programs above may have translated what it belongs to, of clients
/// outside and nobody else.
#[test]
fn packets_of_connections_that_programs_translate_begin_nothing() {
    let choice = |count| Some(Choice::Random { count, offset: 0 });
    let chains = [
        (
            ServiceChain::Local(At::NodePort, choice(3), choice(1)),
            true,
        ),
        (ServiceChain::Local(At::Address, choice(3), None), false),
        (
            ServiceChain::External(At::Address, choice(3).unwrap()),
            true,
        ),
        (ServiceChain::ClusterIp(choice(3).unwrap()), true),
    ];
    for above in [Translates::Nothing, Translates::All] {
        let options = NftablesOptions { above, ..OPTIONS };
        let facts = Facts::of(&NodeState::default(), IpFamily::V4, options);
        for (chain, may_be_theirs) in &chains {
            let rules = chain.rules(&facts);
            let drops = [Statement::BeginsNothing, Statement::Verdict(Verdict::Drop)];
            let at = rules.iter().position(|rule| rule.statements == drops);
            let is_dropped = *may_be_theirs && above == Translates::All;
            assert_eq!(at.is_some(), is_dropped, "{chain:?} {above:?}");
            if let Some(at) = at {
                let of_this_node = |rule: &Rule| rule.statements.contains(&Statement::FromHost);
                assert!(!rules[at..].iter().any(of_this_node));
                assert_eq!(at + 2, rules.len());
            }
        }
    }
}
