//! What the kernel has in the table of one family, and how that differs from what it should have.
//! Knows not how it was read.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proxy_model::{Difference, DifferenceKind, IpFamily};

use super::{
    TABLE,
    key::Key,
    plan::Plan,
    ranges,
    ruleset::{Hook, Rule, Value},
    sets::Set,
    text::Words,
    wanted::{Elements, Wanted},
};

/// What is there.
#[derive(Debug, Default)]
pub struct Found {
    /// Whether the kernel passes all of it by (`flags dormant`).
    pub dormant: bool,
    /// Chains by name.
    pub chains: BTreeMap<Arc<str>, FoundChain>,
    /// The sets that every table has, as far as they have the form that they should have.
    pub sets: BTreeSet<Set>,
    /// All other sets, and those of another form.
    pub others: BTreeSet<Arc<str>>,
    /// Named ranges: how many elements each has.
    pub ranges: BTreeMap<Arc<str>, usize>,
    /// Elements.
    pub elements: Elements,
    /// Elements that cannot be ours, by set.
    pub strange: BTreeSet<Set>,
}

/// A chain that is there.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FoundChain {
    /// Where the kernel enters it.
    pub hook: Option<FoundHook>,
    /// What each of its rules says of itself; `None` for one that is not ours.
    pub rules: Vec<Option<u64>>,
}

/// Where the kernel enters a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundHook {
    /// `filter` or `nat`.
    pub kind: String,
    /// Number of the hook.
    pub place: u32,
    /// Lower ones come first.
    pub priority: i32,
}

/// What the kernel says of objects of ours: the part of the comparison that is not plain.
pub trait Encoding {
    /// What a rule of ours says of itself.
    fn hash(&self, rule: &Rule) -> u64;
    /// How a hook of ours looks there.
    fn hook(&self, hook: Hook) -> FoundHook;
}

/// What differs, and what must be written so that nothing does.
#[derive(Debug, Default)]
pub struct Comparison {
    /// What must be written.
    pub plan: Plan,
    /// What differs.
    pub differences: Vec<Difference>,
}

/// Compares. `stale`: chains and ranges that wait for being deleted, which is no difference.
pub fn compare(
    found: Option<&Found>,
    wanted: &Wanted,
    elements: &Elements,
    stale: &BTreeSet<Arc<str>>,
    encoding: &impl Encoding,
) -> Comparison {
    let family = wanted.facts.family;
    let mut comparison = Comparison::default();
    let Some(found) = found else {
        comparison.note(family, "", DifferenceKind::Missing, None, None);
        comparison.plan = Plan::whole(wanted, elements);
        return comparison;
    };
    if found.dormant {
        let flags = Some("flags dormant".to_owned());
        comparison.note(family, "", DifferenceKind::Changed, None, flags);
        comparison.plan = Plan::whole(wanted, elements);
        return comparison;
    }
    if !comparison.fits(found, wanted, encoding) {
        comparison.plan = Plan::whole(wanted, elements);
        return comparison;
    }
    comparison.chains(found, wanted, stale, encoding);
    comparison.ranges(found, wanted, stale);
    comparison.elements(found, elements, family);
    comparison
}

impl Comparison {
    fn note(
        &mut self,
        family: IpFamily,
        object: &str,
        kind: DifferenceKind,
        wanted: Option<String>,
        found: Option<String>,
    ) {
        let (ip, space) = (Words(family).ip(), if object.is_empty() { "" } else { " " });
        self.differences.push(Difference {
            object: format!("table {ip} {TABLE}{space}{object}"),
            kind,
            service: None,
            wanted,
            found,
        });
    }

    /// Whether sets and hooks have the form that they should have; nothing but making the table
    /// anew can change that.
    fn fits(&mut self, found: &Found, wanted: &Wanted, encoding: &impl Encoding) -> bool {
        let family = wanted.facts.family;
        let mut fits = true;
        for set in Set::ALL {
            if !found.sets.contains(&set) {
                let object = format!("set {}", set.name());
                let kind = if found.others.contains(set.name()) {
                    DifferenceKind::Changed
                } else {
                    DifferenceKind::Missing
                };
                self.note(family, &object, kind, None, None);
                fits = false;
            }
        }
        for chain in &wanted.fixed {
            let Some(there) = found.chains.get(chain.name) else {
                continue;
            };
            if there.hook != chain.hook.map(|hook| encoding.hook(hook)) {
                let object = format!("chain {}", chain.name);
                let hook = there.hook.as_ref().map(|hook| format!("{hook:?}"));
                self.note(family, &object, DifferenceKind::Changed, None, hook);
                fits = false;
            }
        }
        for (name, (ranges, _)) in &wanted.ranges {
            let there = found.ranges.get(name);
            let ends = ranges::ends(ranges).len();
            if let Some(there) = there.filter(|there| **there != ends) {
                let (wanted, there) = (format!("{ends} ends"), format!("{there} ends"));
                let object = format!("set {name}");
                self.note(
                    family,
                    &object,
                    DifferenceKind::Changed,
                    Some(wanted),
                    Some(there),
                );
                fits = false;
            }
        }
        for set in &found.strange {
            let object = format!("set {}", set.name());
            let what = "an element that this agent did not write".to_owned();
            self.note(
                family,
                &object,
                DifferenceKind::Unexpected,
                None,
                Some(what),
            );
            fits = false;
        }
        fits
    }

    fn chains(
        &mut self,
        found: &Found,
        wanted: &Wanted,
        stale: &BTreeSet<Arc<str>>,
        encoding: &impl Encoding,
    ) {
        let family = wanted.facts.family;
        for (name, rules) in wanted.rules() {
            let object = format!("chain {name}");
            let Some(there) = found.chains.get(&name) else {
                self.note(family, &object, DifferenceKind::Missing, None, None);
                self.plan.new_chains.push((name, rules));
                continue;
            };
            let hashes: Vec<_> = rules.iter().map(|rule| Some(encoding.hash(rule))).collect();
            if there.rules != hashes {
                let count = |rules: usize| Some(format!("{rules} rules"));
                let ours = there
                    .rules
                    .iter()
                    .filter(|rule| hashes.contains(rule))
                    .count();
                let found = format!("{ours} of them, and {} others", there.rules.len() - ours);
                self.note(
                    family,
                    &object,
                    DifferenceKind::Changed,
                    count(rules.len()),
                    Some(found),
                );
                self.plan.rewritten.push((name, rules));
            }
        }
        let names = wanted.chain_names();
        for name in found.chains.keys() {
            if !names.contains(name) {
                if !stale.contains(name) {
                    let object = format!("chain {name}");
                    self.note(family, &object, DifferenceKind::Unexpected, None, None);
                }
                // Nothing of what is in it may lead to another one that is to go.
                self.plan.rewritten.push((Arc::clone(name), vec![]));
                self.plan.stale_chains.push(Arc::clone(name));
            }
        }
    }

    fn ranges(&mut self, found: &Found, wanted: &Wanted, stale: &BTreeSet<Arc<str>>) {
        let family = wanted.facts.family;
        for (name, (ranges, _)) in &wanted.ranges {
            if !found.ranges.contains_key(name) {
                let object = format!("set {name}");
                self.note(family, &object, DifferenceKind::Missing, None, None);
                self.plan.new_ranges.push(ranges.clone());
            }
        }
        let unknown = found.ranges.keys().chain(&found.others);
        for name in unknown.filter(|name| !wanted.ranges.contains_key(*name)) {
            if !stale.contains(name) {
                let object = format!("set {name}");
                self.note(family, &object, DifferenceKind::Unexpected, None, None);
            }
            self.plan.stale_ranges.push(Arc::clone(name));
        }
    }

    fn elements(&mut self, found: &Found, wanted: &Elements, family: IpFamily) {
        let words = Words(family);
        let object =
            |set: Set, key: &Key| format!("{} {{ {} }}", set.name(), words.element_key(set, key));
        let shown = |value: &Value| words.value(value);
        for (place @ (set, key), value) in wanted {
            let there = found.elements.get(place);
            if there == Some(value) {
                continue;
            }
            let kind = match there {
                Some(_) => DifferenceKind::Changed,
                None => DifferenceKind::Missing,
            };
            let found = there.and_then(shown);
            self.note(family, &object(*set, key), kind, shown(value), found);
            let before = there.map(|before| (*set, *key, before.clone()));
            self.plan.removed.extend(before);
            self.plan.added.push((*set, *key, value.clone()));
        }
        for (place @ (set, key), value) in &found.elements {
            if !wanted.contains_key(place) {
                let object = object(*set, key);
                self.note(
                    family,
                    &object,
                    DifferenceKind::Unexpected,
                    None,
                    shown(value),
                );
                self.plan.removed.push((*set, *key, value.clone()));
            }
        }
    }
}
